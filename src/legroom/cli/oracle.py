"""`legroom oracle`: the XLA compilers in their private environments."""

import click

from legroom.cli.output import answers, json_option, print_json, progress
from legroom.engines.xla.environment import home, install, installed_releases
from legroom.engines.xla.releases import Release
from legroom.errors import InputError
from legroom.front.machine import releases_wanted


@click.group()
def oracle() -> None:
    """The XLA compilers that answer for GPUs that are not here."""


@oracle.command("install")
@click.option(
    "--release",
    metavar="VERSION",
    help="A jaxlib version; otherwise those that match the installed TensorFlow and JAX.",
)
@click.option("--force", is_flag=True, help="Make it anew even if it is there.")
def install_command(release: str | None, force: bool) -> int:
    """Install the XLA releases that match your TensorFlow and JAX.

    \b
    Examples:
      legroom oracle install
      legroom oracle install --release 0.9.0
    """
    wanted = [Release(release, True)] if release else releases_wanted()
    if not wanted:
        raise InputError(
            "Neither TensorFlow nor JAX is installed here, so it is not known which compilers are needed.",
            "Install one (pip install 'legroom[tensorflow]'), or name a release: legroom oracle install --release 0.9.0",
        )
    for one in wanted:
        with progress() as say:
            environment = install(one, say, force)
        answers().print(f"jaxlib {one.version} is ready in {environment.folder}", soft_wrap=True)
    return 0


@oracle.command("list")
@json_option()
def list_command(as_json: bool) -> int:
    """List the releases that are installed."""
    found = installed_releases()
    if as_json:
        print_json({"schema": 1, "folder": str(home()), "releases": [one.release for one in found]})
    else:
        answers().print(
            "\n".join(f"jaxlib {one.release}  {one.folder}" for one in found) or "none installed", soft_wrap=True
        )
    return 0
