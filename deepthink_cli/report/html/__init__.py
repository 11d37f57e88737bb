"""Reports as one HTML file: tables that sort, curves, settings and a browser of samples, without any network."""
