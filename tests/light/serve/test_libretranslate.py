"""LibreTranslate's own description of its API, read from its package, as the judge of our answers.

`pip install jsonschema` and `pip install --no-deps libretranslate` suffice: its code is read, not imported. It is
AGPL, so nothing of it is here.
"""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("yaml")
pytest.importorskip("jsonschema")

import jsonschema
import yaml

from capsule_mt.text.detecting import Detected
from tests.light.serve.test_app import Client, make_client  # noqa: F401, the fixture

ROUTE = re.compile(r"bp\.(get|post|route)\('([^']+)'")
OUR_ERRORS = {"/suggest": 403}  # suggestions are not collected
FORM = {"source": "en", "target": "de", "q": "He sleeps."}
# what a client sends to each path, as a form
REQUESTS = {
    "/translate": [FORM, {**FORM, "source": "auto"}, {**FORM, "alternatives": 2}, {**FORM, "format": "html"}],
    "/detect": [{"q": "He sleeps."}],
    "/translate_file": [{"source": "en", "target": "de"}],
    "/suggest": [{**FORM, "s": "Er schläft."}],
}


class English:
    """A detector for which every text is English."""

    def rank(self, text):
        return [Detected("en", 0.9)]


def documented():
    """Return the description of each path that LibreTranslate documents."""
    spec = importlib.util.find_spec("libretranslate")
    if spec is None or spec.origin is None:
        pytest.skip("libretranslate is not installed")
    descriptions = {}
    for node in ast.walk(ast.parse((Path(spec.origin).parent / "app.py").read_text(encoding="utf-8"))):
        routes = [ROUTE.match(ast.unparse(decorator)) for decorator in getattr(node, "decorator_list", ())]
        _, separator, description = (ast.get_docstring(node) or "").partition("\n---\n") if any(routes) else ("",) * 3
        if separator:
            method, path = next(filter(None, routes)).groups()
            descriptions[path] = ("get" if method == "route" else method, yaml.safe_load(description))
    assert len(descriptions) >= 7
    return descriptions


def test_what_libretranslate_documents_is_answered_as_it_says(make_client):  # noqa: F811
    client = make_client(detector=English())
    paths = client.get("/openapi.json").json()["paths"]
    for path, (method, description) in documented().items():
        assert method in paths[path], path
        fields = {parameter["name"] for parameter in description.get("parameters", ())}
        schemas = [
            content["schema"] for content in paths[path][method].get("requestBody", {}).get("content", {}).values()
        ]
        for schema in schemas if path != "/suggest" else ():
            assert fields <= set(schema["properties"]), path
        for form in REQUESTS.get(path, [None]):
            files = {"file": ("a.txt", b"He sleeps.")} if path == "/translate_file" else None
            response = client((method.upper(), path, {"data": form, "files": files} if form else {}))[0]
            status = OUR_ERRORS.get(path, 200)
            assert response.status_code == status, (path, response.text)
            schema = description["responses"][status]["schema"]
            jsonschema.validate(response.json(), schema)
            optional = {"detectedLanguage", "alternatives"} - (form or {}).keys()
            optional -= {"detectedLanguage"} if (form or {}).get("source") == "auto" else set()
            for record in response.json() if schema["type"] == "array" else [response.json()]:
                assert set(schema.get("items", schema).get("properties", record)) - optional <= set(record), path


def test_the_errors_that_libretranslate_documents(make_client):  # noqa: F811
    client: Client = make_client()
    _, description = documented()["/translate"]
    for form in ({**FORM, "target": "zz"}, {"source": "en", "target": "de"}):
        response = client(("POST", "/translate", {"data": form}))[0]
        assert response.status_code == 400
        jsonschema.validate(json.loads(response.text), description["responses"][400]["schema"])
