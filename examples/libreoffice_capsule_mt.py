"""A macro of LibreOffice Writer that translates the selected text by `capsule-mt serve`.

Put this file into `Scripts/python` of LibreOffice's user folder, ~/.config/libreoffice/4/user on Linux, and run it by
Tools, Macros, Run Macro. Python macros need the package libreoffice-script-provider-python on Debian.
"""

import json
import urllib.request

SERVER, SOURCE, TARGET = "http://127.0.0.1:5000", "en", "pt"


def translate_selection(*arguments):
    """Replace each selected range by its translation, which has the format of the range's beginning."""
    selection = XSCRIPTCONTEXT.getDocument().CurrentController.Selection  # noqa: F821 LibreOffice defines it
    for index in range(selection.Count):
        text_range = selection.getByIndex(index)
        if text_range.String.strip():
            fields = {"q": text_range.String, "source": SOURCE, "target": TARGET}
            request = urllib.request.Request(
                f"{SERVER}/translate", json.dumps(fields).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as response:
                text_range.String = json.load(response)["translatedText"]
