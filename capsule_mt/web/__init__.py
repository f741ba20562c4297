"""Python's side of the npm package in the repository's `web`: its build, its model files, a site with its page."""
