"""CTranslate2, installed once."""

from pathlib import Path

import pytest

from tests.ctranslate2.judge import Judge


@pytest.fixture(scope="session")
def judge(request) -> Judge:
    return Judge(Path(request.config.cache.mkdir("ctranslate2")))
