"""What TensorFlow's dataset classes and operations are to the host: a table from their names to kinds of stages."""

_KINDS = {
    "source": ("TensorSlice", "Tensor", "SparseTensorSlice"),
    "range": ("Range", "Random", "ListSnapshotChunks"),
    "generator": ("Generator",),
    "files": ("TFRecord", "TextLine", "FixedLengthRecord", "SnapshotChunk", "Load", "MatchingFiles", "Csv"),
    "map": ("Map", "ParallelMap", "Scan"),
    "batch": ("Batch", "ParallelBatch", "PaddedBatch", "DenseToRaggedBatch", "DenseToSparseBatch", "Rebatch"),
    "shuffle": ("Shuffle", "ShuffleAndRepeat"),
    "cache": ("Cache", "MemoryCache"),
    "prefetch": ("Prefetch",),
    "interleave": ("Interleave", "ParallelInterleave", "FlatMap"),
    "unbatch": ("Unbatch",),
    "window": ("Window",),
    "zip": ("Zip",),
    "concatenate": ("Concatenate",),
    "merge": ("DirectedInterleave", "ChooseFrom", "SampleFrom", "Choose"),
    "pass": (
        *("Take", "Skip", "Shard", "Filter", "Options", "Repeat", "TakeWhile", "AssertCardinality", "Finalize"),
        *(
            "Model",
            "IgnoreErrors",
            "Unique",
            "Restructured",
            "Snapshot",
            "AssertNext",
            "AutoShard",
            "MaxIntraOpParallelism",
        ),
        *("PrivateThreadPool", "Optimize", "UnaryUnchangedStructure", "SetStatsAggregator", "NonSerializable", "Sleep"),
    ),
}
_BY_NAME = {f"{name}Dataset": kind for kind, names in _KINDS.items() for name in names}

SAME_ELEMENTS = ("shuffle", "cache", "prefetch", "pass")
NUMBERS = {
    "batch": "batch_size",
    "shuffle": "buffer_size",
    "prefetch": "buffer_size",
    "interleave": "cycle_length",
    "window": "size",
}


def kind_of(name: str) -> str:
    """The kind of a stage by TensorFlow's name for it, without underscore and version: `ShuffleDataset`."""
    return _BY_NAME.get(name, "unknown")
