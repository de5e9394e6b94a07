"""Shelf: what trainers read, one file per trainer or reader.

An exporter module offers:

- `write(folder, part, examples, *, vocabulary) -> list[str]`: the examples of a part ("train", "validation") as files;
  their paths in the folder. Memory stays bounded whatever the number of examples;
- `read(folder, part) -> Iterator[tuple[Ids, LossMask]]`: what the trainer will see of the part, from its files alone,
  in the order written.

`folder`: an fsspec file system whose root is the export's folder, local or S3. `vocabulary`:
`exporting.vocabulary.Vocabulary`. What exporters share: `_rows` (JSON lines), `_saved` (`save_to_disk` folders).

Invariant: `read` gives the ids and masks that went into `write`, id by id (tests/contracts).
"""
