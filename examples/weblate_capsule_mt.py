"""Machine translation in Weblate by `capsule-mt serve`, with a quality that says which suggestions to look at.

Put this file on the Python path of Weblate, and name it in `settings.py`, beside the other services that you use:

    WEBLATE_MACHINERY = ("weblate_capsule_mt.CapsuleTranslation", "weblate.memory.machine.WeblateMemory")

Then choose capsule-mt in Weblate's machine translation settings, and give it the server's address and, if the server
needs one, a key. Weblate's own LibreTranslate service works with the server, too, if that serves en-de, which Weblate
translates to check its settings. It gives every suggestion the same quality, hides tags and placeholders from the
model, and asks for pairs that are not served.
"""

from django.core.exceptions import ValidationError
from weblate.machinery.libretranslate import LibreTranslateTranslation

# below 75, Weblate's usual threshold of automatic suggestions
QUALITY_OF_DOUBT = 70  # something may have been left out or made up
QUALITY_OF_FAULT = 40  # a number, a placeholder, a tag or the like is missing


class CapsuleTranslation(LibreTranslateTranslation):
    """Suggests translations; those that lost something are below the threshold of automatic suggestions."""

    name = "capsule-mt"
    do_cleanup = False  # the server keeps tags and placeholders itself, where it sees them

    def download_languages(self):
        """Return the pairs that the server translates, in lower case."""
        languages = self.request("get", self.get_api_url("languages")).json()
        pairs = [(source["code"], target) for source in languages for target in source["targets"]]
        return [tuple(code.replace("_", "-").lower() for code in pair) for pair in pairs if pair[0] != pair[1]]

    def is_supported(self, source, language):
        return (source.lower(), language.lower()) in self.supported_languages

    def validate_settings(self):
        """Translate by a pair that the server has."""
        try:
            source, target = self.download_languages()[0]
            self.download_multiple_translations(source, target, [("test", None)])
        except Exception as error:
            raise ValidationError(f"{self.api_base_url} does not translate: {error}") from error

    def download_multiple_translations(self, source_language, target_language, sources, user=None, threshold=75):
        """Return the suggestions for each text."""
        texts = [text for text, _ in sources]
        fields = {
            "q": texts,
            "source": source_language,
            "target": target_language,
            "coverage": True,
            "api_key": self.settings["key"],
        }
        answer = self.request("post", self.get_api_url("translate"), json=fields).json()
        return {
            text: [
                {
                    "text": translation,
                    "quality": self.quality_of(coverage),
                    "service": self.name,
                    "source": text,
                }
            ]
            for text, translation, coverage in zip(texts, answer["translatedText"], answer["coverage"], strict=True)
        }

    def quality_of(self, coverage):
        """Return the quality of a suggestion; `coverage` is None if the model cannot mark words."""
        if coverage is None:
            return self.max_score
        levels = {problem["level"] for problem in coverage["problems"]}
        if "fault" in levels:
            return QUALITY_OF_FAULT
        return QUALITY_OF_DOUBT if levels else self.max_score
