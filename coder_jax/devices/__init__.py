"""Devices and hosts: the mesh, batches on their way to it, several processes as one run."""
