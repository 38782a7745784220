"""An invented UMLS release of any size."""
