"""The command that builds a folder of mentions: dictionary, options, folder, report."""
