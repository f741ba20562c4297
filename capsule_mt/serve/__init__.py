"""The translation server: LibreTranslate's API, coverage, and a page. It needs the extra `serve`."""
