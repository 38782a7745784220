"""What a run of the tests says at its end."""

from types import SimpleNamespace


def test_what_was_not_tried_is_said_last(pytestconfig, repo):
    plugin = pytestconfig.pluginmanager.get_plugin(str(repo / "tests" / "conftest.py"))
    reasons = ["no Chromium (apt-get install chromium)", "could not import 'torch': none"]
    skipped = [SimpleNamespace(longrepr=("a.py", 1, f"Skipped: {one}")) for one in reasons * 2]
    lines = []
    reporter = SimpleNamespace(
        stats={"skipped": skipped[:3]}, section=lines.append, write_line=lines.append
    )
    assert list(plugin.pytest_terminal_summary(reporter)) == [None]
    assert lines == [
        "3 tests were not tried",
        "   2  no Chromium (apt-get install chromium)",
        "   1  could not import 'torch': none (see requirements-test.txt)",
    ]
