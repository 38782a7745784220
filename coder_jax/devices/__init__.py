"""Devices and hosts: where each array lies, batches on their way there, processes as one run."""
