"""`python -m data_pipeline.build`: the short name of `data_pipeline.build_dataset`."""

import sys

from data_pipeline.build_dataset.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
