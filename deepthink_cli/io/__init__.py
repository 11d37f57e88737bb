"""Files and text: atomic writes, strict documents, background threads."""
