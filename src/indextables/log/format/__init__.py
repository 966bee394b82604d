"""The files of the log: actions, version files, Avro manifests and states, checkpoints, pointer."""
