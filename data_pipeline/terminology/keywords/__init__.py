"""Keywords of terms, such as the site and the type of a procedure: found, and derived."""
