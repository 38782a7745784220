"""The project measured on an accelerator, part by part: `bash benchmarks/accelerator.sh --help`."""
