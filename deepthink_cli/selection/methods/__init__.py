"""Methods of choosing demonstrations: one file a method or a family of them."""
