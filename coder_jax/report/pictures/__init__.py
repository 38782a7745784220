"""Pictures of a training run that stand in files of their own, drawn by matplotlib."""
