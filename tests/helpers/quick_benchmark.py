"""A benchmark's command in this process, with limits that are not measured."""

import os


def quicken(monkeypatch, benchmark) -> list[str | None]:
    """Returns the list that what the benchmark asks of its process is added to."""
    monkeypatch.setattr("benchmarks.limits._matmul_peak", lambda dtype, seconds: 1e11)
    monkeypatch.setattr("benchmarks.limits._copy_bandwidth", lambda seconds: 1e10)
    told: list[str | None] = []

    def in_this_process(call, *arguments):
        told.append(os.environ.get("GLIBC_TUNABLES"))
        return call(*arguments)

    monkeypatch.setattr("benchmarks.command.in_a_process", in_this_process)
    monkeypatch.setattr(benchmark, "set_up_xla", lambda: told.append("set up"))
    return told
