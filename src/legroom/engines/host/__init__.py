"""The host's half of an estimate: RAM for arrays, pipelines and the framework, and the limit that really holds."""
