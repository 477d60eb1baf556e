"""A folder with a folder of images for each class: read and resized one by one, uint8 until the device.

Names are plain text: a `Path` puts each part of its name into Python's table of interned strings, which then grows while images are read.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from legroom.data.sources.arrays import ArrayColumn
from legroom.data.sources.options import Options, needs
from legroom.errors import InputError

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"}


class ImageColumn:
    """Images as arrays of one size, in RGB."""

    def __init__(self, folder: str, files: list[str], size: tuple[int, int] | None) -> None:
        self.folder, self.files, self.length = folder, files, len(files)
        first = self.size_of(0)
        self.fixed, self.size = size is None, size or first
        self.shape: tuple[int, ...] = (*self.size, 3)
        self.dtype = np.dtype(np.uint8)
        height, width = max((self.size_of(i) for i in spread(self.length)), key=lambda size: size[0] * size[1])
        self.unpacked_bytes = 2 * 4 * height * width  # as it is unpacked, with the copy that is resized
        self.reading_bytes = 0

    def size_of(self, index: int) -> tuple[int, int]:
        from PIL import Image

        try:
            with Image.open(self.path(index)) as image:
                return image.height, image.width
        except OSError as error:
            raise InputError(f"Sample {self.name(index)} is no image: {error}.", "Take the file out.") from error

    def read_into(self, indices: Any, out: Any) -> None:
        for place, index in enumerate(indices.tolist()):
            self.read_one(index, out[place])

    def read_one(self, index: int, out: Any) -> None:
        from PIL import Image

        try:
            with Image.open(self.path(index)) as image:
                if self.fixed and (image.height, image.width) != self.size:
                    raise InputError(
                        f"Sample {self.name(index)} is of {image.height} by {image.width}, and others of {self.size[0]} by {self.size[1]}.",
                        "Give `image_size=(height, width)`, to which all are resized.",
                    )
                if not self.fixed:
                    image.draft("RGB", (self.size[1], self.size[0]))
                colours = image.convert("RGB")
                if (colours.height, colours.width) != self.size:
                    colours = colours.resize((self.size[1], self.size[0]), Image.Resampling.BILINEAR)
                out[...] = colours
        except (OSError, ValueError, SyntaxError) as error:
            raise InputError(
                f"Sample {self.name(index)} could not be read: {error}.",
                "No step has seen a part of its batch. Repair or take out the file, then go on from the stream's state.",
            ) from error

    def name(self, index: int) -> str:
        return f"{index} ({self.path(index)})"

    def path(self, index: int) -> str:
        return os.path.join(self.folder, self.files[index])


def image_columns(folder: Path, options: Options) -> Any:
    """`(image, label)`, labels in the order of the folders' names; a folder without folders has images only."""
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise needs("Pillow", "data", "Images") from error
    top = str(folder)
    classes = sorted(entry.name for entry in os.scandir(top) if entry.is_dir() and not entry.name.startswith("."))
    files: list[str] = []
    labels: list[int] = []
    for number, name in enumerate(classes or ["."]):
        found = images_under(os.path.join(top, name), top)
        files += found
        labels += [number] * len(found)
    if not files:
        raise InputError(f"{folder} has no images in it.", "Give a folder with a folder of images for each class.")
    options.held_bytes += sum(len(name) + 64 for name in files) + 4 * len(files)
    images = ImageColumn(top, files, options.image_size)
    return (images, ArrayColumn(np.array(labels, np.int32))) if classes else images


def images_under(folder: str, top: str) -> list[str]:
    """The images in a folder and in those under it, by their names from `top` on."""
    return sorted(
        os.path.normpath(os.path.relpath(inside, top) + os.sep + name)
        for inside, _, names in os.walk(folder)
        for name in names
        if os.path.splitext(name)[1].lower() in SUFFIXES
    )


def spread(length: int) -> list[int]:
    """A few places all over the data, to measure at."""
    return sorted({length * part // 8 for part in range(8)} | {length - 1}) if length else []
