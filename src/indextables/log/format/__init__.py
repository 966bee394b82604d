"""How the log stands on storage: actions, version files, Avro manifests and states, checkpoints, pointer."""
