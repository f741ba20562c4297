"""One file of each format, as people have them."""

import io
import zipfile

HTML = """<!DOCTYPE html>
<html lang="de">
<head><meta charset="utf-8"><title>Der Mann &amp; das Meer</title>
<meta name="description" content="Eine Geschichte."><meta name="generator" content="Hugo">
<style>p > b { color: red }</style>
<script>if (a < b && c > d) { alert("Hallo"); }</script></head>
<body><!-- ein Kommentar -->
<h1>Willkommen</h1>
<p>Der <b>alte</b> Mann kauft einen <a href="hut.html">roten&nbsp;Hut</a>. Er schläft.
<img src="a.png" alt="Ein Hut"></p>
<ul><li>Erster Punkt<li>Zweiter Punkt</ul>
<p>Rufe <code>ls -l</code> auf.<br>Danach 3 &lt; 4.</p>
<p translate="no">Bleibt</p><pre>
  Roh <b>bleibt</b></pre>
<td>42</td><input placeholder='Dein Name'>
</body></html>
"""
SRT = """1
00:00:01,000 --> 00:00:03,000
Der alte Mann, der gestern
einen roten Hut gekauft hat,

2
00:00:03,100 --> 00:00:05,500
schläft heute sehr lange.

3
00:00:06,000 --> 00:00:08,000
- Wo ist dein Bruder?
- Er schläft.

4
00:00:09,000 --> 00:00:10,000
{\\an8}<i>Das Wetter ist gut.</i>

5
00:00:11,000 --> 00:00:12,000
♪
"""
VTT = """WEBVTT - Film

NOTE Der Kommentar bleibt

STYLE
::cue { color: white }

intro
00:01.000 --> 00:03.000 align:start
<v Roger>Der alte Mann kauft</v>

00:03.100 --> 00:05.500
<v Roger>einen roten &amp; großen Hut.</v>
"""
ASS = """[Script Info]
Title: Film
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize, Bold
Style: Default,Arial,20,0

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:01.00,0:00:03.00,Default,Anna,0,0,0,,{\\an8}{\\fad(9,9)}Der Mann, der\\N{\\i1}gestern{\\i0} da war,
Dialogue: 0,0:00:03.10,0:00:04.40,Default,Anna,0,0,0,,schläft{a note, for the typesetter} heute.
Dialogue: 1,0:00:03.10,0:00:05.50,Sign,,0,0,0,,{\\pos(10,20)}Café zum Hut{\\r}
Dialogue: 0,0:00:06.00,0:00:08.00,Song,,0,0,0,karaoke,{\\k20}{\\k30}Ster{\\k30}nen{\\k40}nacht
Dialogue: 0,0:00:06.00,0:00:08.00,Sign,,0,0,0,,{\\p1}m 0 0 l 100 0 100 100{\\p0}
Comment: 0,0:00:06.00,0:00:08.00,Default,,0,0,0,,Nicht gezeigt
Dialogue: 0,0:00:09.00,0:00:10.00,Default,,0,0,0,,42
"""
PO = """# Kopf
msgid ""
msgstr ""
"Project-Id-Version: x\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: a.c:1
#, c-format
msgid "%d Datei ist \\"weg\\".\\n"
msgid_plural "%d Dateien sind \\"weg\\".\\n"
msgstr[0] ""
msgstr[1] ""

#, fuzzy, python-format
#| msgid "alt"
msgid "Der Benutzer %(name)s schläft."
msgstr "Old guess"

msgctxt "Menü"
msgid ""
"Eine lange Zeile, "
"die geteilt ist."
msgstr ""

msgid "Fertig"
msgstr "Done"

#~ msgid "Alt"
#~ msgstr "Old"
"""
XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
  <!-- Kommentar -->
  <file original="a" source-language="de" datatype="plaintext">
    <body>
      <trans-unit id="1">
        <source>Der <g id="1">alte</g> Mann kauft <x id="INTERPOLATION"/> &amp; einen Hut.</source>
        <note>Ein Hinweis</note>
      </trans-unit>
      <trans-unit id="2"><source>Er schläft.</source><target state="new"></target></trans-unit>
      <trans-unit id="3"><source>Fertig</source><target>Done</target></trans-unit>
      <trans-unit id="4" translate="no"><source>Bleibt</source></trans-unit>
    </body>
  </file>
</xliff>
"""
XLIFF_2 = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="de"><file id="f"><unit id="u">'
    '<segment><source>Der <pc id="1">alte</pc> Mann.</source></segment></unit></file></xliff>'
)
XLIFF_HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"'
)
TRADOS_HEAD = ' xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0" sdl:version="1.0"'
TRADOS = f"""{XLIFF_HEAD}{TRADOS_HEAD}>
<file original="a.docx" source-language="de-DE" datatype="x-sdlfilterframework2"><header/><body>
<group><trans-unit id="a"><source><g id="7">Der alte Mann. <g id="8">Er schläft</g>.</g> Fertig. Fest.</source>
<seg-source><g id="7"><mrk mtype="seg" mid="1">Der alte Mann.</mrk>
<mrk mtype="seg" mid="2"><g id="8">Er schläft</g>.</mrk>
</g> <mrk mtype="seg" mid="3">Fertig.</mrk> <mrk mtype="seg" mid="4">Fest.</mrk></seg-source>
<target><g id="7"><mrk mtype="seg" mid="1"/> <mrk mtype="seg" mid="2"></mrk></g> <mrk mtype="seg" mid="3">Done.</mrk>
<mrk mtype="seg" mid="4"/></target><sdl:seg-defs><sdl:seg id="1"/><sdl:seg id="2" conf="Draft" origin="tm"/>
<sdl:seg id="3" conf="Translated"/><sdl:seg id="4" locked="true"/></sdl:seg-defs></trans-unit></group>
<trans-unit id="b"><source>Ein Hut. Ein Haus.</source><seg-source><mrk mtype="seg" mid="5">Ein Hut.</mrk>
<mrk mtype="seg" mid="6">Ein Haus.</mrk></seg-source></trans-unit>
<trans-unit id="c" translate="no"><source>Bleibt hier.</source></trans-unit></body></file></xliff>
"""
MEMOQ = f"""{XLIFF_HEAD} xmlns:mq="MQXliff">
<file original="a.docx" source-language="de" datatype="x-docx"><body>
<trans-unit id="1" mq:status="NotStarted"><source xml:space="preserve">Der <bpt id="1" ctype="bold">{{}}</bpt>alte<ept
id="1">{{}}</ept>  Mann<ph id="2">&lt;mq:ch val="x" /&gt;</ph>.</source>
<target xml:space="preserve" /><mq:minorversions>
<mq:historical-unit><source>Der Mann.</source><target></target></mq:historical-unit></mq:minorversions></trans-unit>
<trans-unit id="2" mq:status="NotStarted" mq:locked="locked"><source>Er schläft.</source><target></target></trans-unit>
<trans-unit id="3" mq:status="ManuallyConfirmed"><source>Ein Hut.</source><target>A hat.</target></trans-unit>
</body></file></xliff>
"""
BOLD = '<x id="START_BOLD_TEXT" ctype="x-b" equiv-text="&lt;b&gt;"/>{}<x id="CLOSE_BOLD_TEXT" ctype="x-b"/>'
ANCHOR = '<x id="START_LINK_1" ctype="x-a"/>{}<x id="CLOSE_LINK" ctype="x-a"/>'
COUNT = '<x id="INTERPOLATION" equiv-text="{{n}}"/>'
ANGULAR = f"""{XLIFF_HEAD}>
<file source-language="de" datatype="plaintext" original="ng2.template"><body>
<trans-unit id="1"><source>Der {BOLD.format("alte")} Mann kauft {ANCHOR.format("einen Hut")}.</source>
</trans-unit>
<trans-unit id="2"><source>
{{VAR_PLURAL, plural, =0 {{gerade jetzt}} =1 {{vor einer Minute}} other {{vor {COUNT} Minuten}}}}</source></trans-unit>
<trans-unit id="3"><source>
{{VAR_SELECT, select, male {{{BOLD.format("er")} schläft}} other {{sie schläft}}}}</source></trans-unit>
<trans-unit id="4"><source>Ein Hut</source><target state="new">Ein Hut</target></trans-unit>
<trans-unit id="5"><source>Ein Haus</source><target state="needs-translation">Some house</target></trans-unit>
</body></file></xliff>
"""
MARKDOWN = """---
title: Bleibt
---

# Der alte Mann

Der **alte** Mann kauft einen [roten Hut](https://example.org/a_(b) "T").
Rufe `ls -l` auf, und *warte*
auf ihn.

* Erster Punkt
* Zweiter Punkt mit snake_case_name und 2 * 3 * 4

1. Eins

   ```python
   print("Bleibt")
   ```

> Ein Zitat
> über zwei Zeilen.

    eingerückter Code bleibt

| Name | Wert |
|------|:----:|
| Ein Hut | 42 |

<div align="center">
  <p>Das bleibt</p>
</div>

<!-- ein Kommentar,

der bleibt -->
```
code bleibt

auch hier
```

Ein Bild: ![ein roter Hut](hut.png) und <https://example.org>. Das ist 5\\* gut.

[ref]: https://example.org

Titel
=====
"""
# as GitHub and documentation sites write it; what stays is in lowercase without an umlaut
SITE = r"""---
title: Bleibt
---

# Getting started {#start}

## Install the package

## Install the package

See [install](#install-the-package), [again](#install-the-package-1), [start](#start) and [none](#elsewhere).
Read the [guide][], the [API], [other][ref] and [not a link].

[guide]: https://example.org/guide
[API]: https://example.org/api "The API"
[ref]: https://example.org/ref

> [!NOTE]
> Useful *information*
> goes here.

> [!tip]- A folded callout
> Text

::: warning Watch out {#w}
Do not open **this**.
:::

:::note[Your **title**]{.x}

Some text.

:::

:::{admonition} My title
:class: tip

Content.
:::

:::{code-block} python
print("stays")
:::

```{note}
A note in a fence.
```

!!! danger "Be careful"

    Indented content is text.

        code stays

??? note

    More.

=== "First tab"

    In a tab.

/// note | A title
Text
///

Term one
: Its definition, with `code`.
: Another one.

*[HTML]: Hyper Text

{: .fs-6 .fw-300 }
A paragraph with a [link](https://example.org){:target="_blank"} and a word{.x}.
{: .note }

$$
x^2 + word
$$

Inline $a_b$ and \\(x^2 + y\\) and \(e^{i}\) but \(see below\).

\begin{align}
stays &= stays
\end{align}

{% include note.html content="stays" %}
{% if page.title %}
Shown {{ page.title | upcase }} and {% link a.md %}.
{% endif %}

{% highlight ruby %}
puts "stays"
{% endhighlight %}

{{< figure src="a.png" title="stays" >}}

import Tabs from '@theme/Tabs';
import {
  A
} from "b";

export const x = 1;

<Tabs groupId="os" values={[
  {label: 'stays', value: 'a > b'},
]}>
<TabItem value="a" label="Stays">

Inside **the tab** is {props.version} text.

</TabItem>
</Tabs>

{/* a comment stays */}

Use <Button kind="x">the button</Button> here.

<details>
<summary>Click <b>me</b></summary>

Hidden text.

</details>

1. One

        code in a list

   Text of one

## Code follows
    code stays
    and more

AT&amp;T &lt;b&gt; costs 5 &euro;.

[TOC]
"""
TSV = "id\ttext\tn\r\n1\tEr schläft.\t3\r\n2\tDer alte Mann.\t4\r\n"
CSV = 'id;text\n1;"Er sagt: ""Gut""; ja."\n'

I18NEXT = """{
    "titel": "Der alte Mann",
    "gruss": "Hallo {{name}}, <0>willkommen</0> bei $t(titel)!",
    "datei_one": "{{count}} Datei",
    "datei_other": "{{count}} Dateien" ,
    "menu": {"hut_one": "Ein Hut", "n": null, "hut_other": "{{count}} Hüte",
      "liste": ["Erster", "\\u00dcber \\"x\\"\\n"]},
    "alt": "Ein Haus", "alt_plural": "{{count}} Häuser", "url": "https://example.org"
}
"""
CHROME = """{
  "appName": {"message": "Der alte Hut", "description": "Der Name"},
  "greeting": {
    "message": "Hallo $USER$, du hast $1 Punkte für $$5.",
    "placeholders": {"user": {"content": "$1", "example": "Maria"}}
  }
}
"""
ARB = """{
  "@@locale": "de",
  "title": "Der alte Mann",
  "@title": {"description": "Der Titel", "placeholders": {"n": {"type": "int"}}},
  "items": "{n, plural, =0{Keine Hüte} one{Ein Hut} other{{n} Hüte}} von {name}"
}
"""

PROPERTIES = """# Kopf
! bleibt
titel = Der alte\\u0020Mann
gruss: Hallo {0}, das ist''s\\n\\
    und noch eine \\
  Zeile
leer=
pfad   C\\:\\\\temp
offen=&Öffnen
"""
STRINGS = """/* Der Titel; = "x" */
"title" = "Der \\"alte\\" Mann";
"count" = "%1$@ hat %2$d Hüte\\nund %%"; // bleibt
plain = "Ein \\U00dcberblick";
"flag" = YES;
"""
STRINGSDICT = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>files</key>
	<dict>
		<key>NSStringLocalizedFormatKey</key>
		<string>Du hast %#@files@ hier</string>
		<key>files</key>
		<dict>
			<key>NSStringFormatSpecTypeKey</key>
			<string>NSStringPluralRuleType</string>
			<key>NSStringFormatValueTypeKey</key>
			<string>d</string>
			<key>one</key>
			<string>eine Datei</string>
			<key>other</key>
			<string>%d Dateien</string>
		</dict>
	</dict>
</dict>
</plist>
"""
ANDROID = """<?xml version="1.0" encoding="utf-8"?>
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">
    <!-- Kommentar -->
    <string name="titel">Der <b>alte</b>  Mann\\'s \\"Hut\\"</string>
    <string name="app" translatable="false">Bleibt hier</string>
    <string name="gruss">Hallo <xliff:g id="name">%1$s</xliff:g>,\\n%2$d Punkte &amp; mehr</string>
    <string name="verweis">@string/titel</string>
    <string name="html"><![CDATA[Der <i>alte</i> Mann]]></string>
    <string name="leer"/>
    <string name="quotes">"  Ein Hut  "</string>
    <string-array name="tage">
        <item>Erster Tag</item>
        <item>\\@home und \\u00dcber</item>
    </string-array>
    <plurals name="dateien">
        <item quantity="one">%d Datei</item>
        <item quantity="other">%d Dateien</item>
    </plurals>
    <integer name="n">5</integer>
</resources>
"""
RESX = """<?xml version="1.0" encoding="utf-8"?>
<root>
  <resheader name="resmimetype"><value>text/microsoft-resx</value></resheader>
  <data name="Titel" xml:space="preserve">
    <value>Der alte Mann &amp; {0:N2}</value>
    <comment>Der Titel</comment>
  </data>
  <data name="knopf.Text" xml:space="preserve"><value>&amp;Öffnen</value></data>
  <data name="knopf.Size" type="System.Drawing.Size, System.Drawing"><value>75, 23</value></data>
  <data name="&gt;&gt;knopf.Name" xml:space="preserve"><value>der knopf</value></data>
  <data name="bild" mimetype="application/x-microsoft.net.object.bytearray.base64"><value>AAEAAA ==</value></data>
</root>
"""
QT = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" sourcelanguage="de">
<context>
    <name>Fenster</name>
    <message>
        <location filename="a.cpp" line="1"/>
        <source>&amp;Datei öffnen %1</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <source>%n Datei(en) gelesen</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <source>Fertig</source>
        <translation type="unfinished">Done?</translation>
    </message>
    <message>
        <source>Alt</source>
        <translation type="vanished">Old</translation>
    </message>
</context>
</TS>
"""
YAML = """# Kopf
---
de: &de
  titel: Der alte Mann  # bleibt
  "gruss": "Hallo %{name},\\n\\u00dcber: \\"x\\""
  lang: Eine lange
    Zeile, die
    weitergeht
  zwei: 'Er sagt: ''Gut'' und
    geht'
  datum: "%d. %B %Y"
  zahl: 5
  an: true
  tage: [Erster, "Zweiter, Tag", 5]
  formate:
  - :symbol
  - Ein Hut
  - schluessel: Ein Haus
    anders: *de
  dateien:
    one: Eine Datei
    other: "%{count} Dateien"
  block: |
    Erste Zeile
      Zweite Zeile

    Dritte
  falte: >-
    Ein langer
    Satz

    Noch einer
  leer:
  nichts: ~
"""

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
LINK = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
CONTENT_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
    f'Type="{LINK}/officeDocument" Target="word/document.xml"/></Relationships>'
)
BODY = (
    '<w:p><w:pPr><w:jc w:val="both"/></w:pPr><w:r><w:rPr><w:lang w:val="de-DE"/></w:rPr><w:t xml:space="preserve">Der '
    '</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>al</w:t></w:r><w:proofErr w:type="spellEnd"/><w:r><w:rPr><w:b/>'
    '<w:lang w:val="de-DE"/></w:rPr><w:t>te</w:t></w:r><w:bookmarkStart w:id="0" w:name="b"/><w:bookmarkEnd w:id="0"/>'
    '<w:r><w:t xml:space="preserve"> Mann kauft </w:t></w:r><w:hyperlink w:anchor="b"><w:r><w:rPr><w:i/></w:rPr>'
    "<w:t>einen Hut</w:t></w:r></w:hyperlink><w:r><w:t>.</w:t><w:br/><w:t>Er schläft &amp; träumt.</w:t></w:r></w:p>"
    '<w:p><w:r><w:t xml:space="preserve">Seite </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r>'
    '<w:instrText>PAGE</w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>1</w:t></w:r>'
    '<w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>'
    "<w:tbl><w:tblPr/><w:tblGrid><w:gridCol/></w:tblGrid><w:tr><w:tc><w:tcPr/><w:p><w:r><w:t>Das Wetter</w:t></w:r>"
    "</w:p></w:tc></w:tr></w:tbl><w:p><w:r><w:pict><w:txbxContent><w:p><w:r><w:t>Im Kasten</w:t></w:r></w:p>"
    "</w:txbxContent></w:pict></w:r><w:r><w:t>Neben dem Kasten</w:t></w:r></w:p><w:sectPr/>"
)


def docx(body: str = BODY, head: str = "") -> bytes:
    """Return a Word document with this body."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", CONTENT_TYPES)
        archive.writestr("_rels/.rels", RELATIONS)
        document = f"<w:document {WORD}><w:body>{body}</w:body></w:document>"
        archive.writestr("word/document.xml", f'<?xml version="1.0" encoding="UTF-8"?>{head}{document}')
    return stream.getvalue()


DRAWING = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
SLIDE = (
    f'<p:sld {DRAWING} xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" xmlns:r="{LINK}"><p:cSld>'
    "<p:spTree><p:nvGrpSpPr/><p:grpSpPr/><p:sp><p:nvSpPr><p:cNvPr id='2' name='T'/><p:cNvSpPr/><p:nvPr/></p:nvSpPr>"
    '<p:spPr/><p:txBody><a:bodyPr/><a:p><a:pPr algn="ctr"/><a:r><a:rPr lang="de-DE" dirty="0"/><a:t>Der </a:t></a:r>'
    "<a:r>"
    '<a:rPr lang="de-DE" b="1"/><a:t>al</a:t></a:r><a:r><a:rPr lang="en-US" b="1" err="1"/><a:t>te</a:t></a:r><a:r>'
    '<a:rPr lang="de-DE"/><a:t> Mann</a:t></a:r><a:br><a:rPr lang="de-DE"/></a:br><a:r><a:t>kauft &amp; schläft.</a:t>'
    '</a:r><a:endParaRPr lang="de-DE"/></a:p><a:p><a:r><a:rPr/><a:t>Seite </a:t></a:r><a:fld id="{1}" type="slidenum">'
    "<a:t>1</a:t>"
    "</a:fld></a:p></p:txBody></p:sp></p:spTree></p:cSld></p:sld>"
)
PRESENTATION = {
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default '
    'Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override '
    'PartName="/ppt/presentation.xml" ContentType="application/vnd.openxmlformats-officedocument.presentationml.'
    'presentation.main+xml"/><Override PartName="/ppt/slides/slide1.xml" ContentType="application/vnd.openxmlformats-'
    'officedocument.presentationml.slide+xml"/></Types>',
    "_rels/.rels": RELATIONS.replace("word/document.xml", "ppt/presentation.xml"),
    "ppt/presentation.xml": '<p:presentation xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    f'xmlns:r="{LINK}"><p:sldIdLst><p:sldId id="256" r:id="r1"/></p:sldIdLst></p:presentation>',
    "ppt/_rels/presentation.xml.rels": RELATIONS.replace('officeDocument"', 'slide"').replace(
        "word/document.xml", "slides/slide1.xml"
    ),
    "ppt/slides/slide1.xml": SLIDE,
}
OPEN_DOCUMENT = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{uri}:1.0"'
    for name, uri in (
        *(("office", "office"), ("text", "text"), ("style", "style"), ("table", "table"), ("draw", "drawing")),
        *(("fo", "xsl-fo-compatible"), ("svg", "svg-compatible")),
    )
)
ODT_TYPE = "application/vnd.oasis.opendocument.text"
ODT_CONTENT = f"""<office:document-content {OPEN_DOCUMENT} xmlns:officeooo="http://openoffice.org/2009/office"
xmlns:xlink="http://www.w3.org/1999/xlink" office:version="1.2"><office:automatic-styles><style:style style:name="B"
style:family="text"><style:text-properties fo:font-weight="bold"/></style:style><style:style style:name="R"
style:family="text"><style:text-properties officeooo:rsid="0012"/></style:style></office:automatic-styles>
<office:body><office:text><text:tracked-changes><text:p>Gelöscht</text:p></text:tracked-changes>
<text:h text:outline-level="1">Der Hut</text:h><text:p>Der <text:span text:style-name="B">al</text:span><text:span
text:style-name="B">te</text:span> Mann <text:span text:style-name="R">kauft</text:span> einen <text:a
xlink:href="https://example.org">Hut</text:a>.<text:note text:id="n"
text:note-class="footnote"><text:note-citation>1</text:note-citation
><text:note-body><text:p>Eine Note.</text:p></text:note-body></text:note><text:line-break/>Er
  <text:s/>schläft &amp; träumt.</text:p><text:p>Name: ________ Seite <text:page-number>3</text:page-number></text:p>
<table:table><table:table-row><table:table-cell><text:p>Das Wetter</text:p></table:table-cell></table:table-row>
</table:table></office:text></office:body></office:document-content>"""
ODT_STYLES = (
    f'<office:document-styles {OPEN_DOCUMENT} office:version="1.2"><office:styles/><office:master-styles>'
    '<style:master-page style:name="S"><style:header><text:p>Kopf der Seite</text:p></style:header>'
    "</style:master-page></office:master-styles></office:document-styles>"
)
MANIFEST = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
TEXT = {
    "mimetype": ODT_TYPE,
    "META-INF/manifest.xml": f'<m:manifest xmlns:m="{MANIFEST}"><m:file-entry m:full-path="/" '
    f'm:media-type="{ODT_TYPE}"/><m:file-entry m:full-path="content.xml" m:media-type="text/xml"/><m:file-entry '
    'm:full-path="styles.xml" m:media-type="text/xml"/></m:manifest>',
    "content.xml": ODT_CONTENT,
    "styles.xml": ODT_STYLES,
}
XHTML = 'xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"'
BOOK = {
    "mimetype": "application/epub+zip",
    "META-INF/container.xml": '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
    '<rootfiles><rootfile full-path="book/package.opf" media-type="application/oebps-package+xml"/></rootfiles>'
    "</container>",
    "book/package.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="i"><metadata '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="i">urn:x</dc:identifier><dc:title>Der alte Mann'
    '</dc:title><dc:language>de</dc:language><meta property="dcterms:modified">2026-01-01T00:00:00Z</meta></metadata>'
    '<manifest><item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/><item id="p" '
    'href="page%201.xhtml" media-type="application/xhtml+xml"/><item id="t" href="toc.ncx" '
    'media-type="application/x-dtbncx+xml"/></manifest><spine toc="t"><itemref idref="p"/></spine></package>',
    "book/page 1.xhtml": f'<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE html><html {XHTML} lang="de" xml:lang="de">'
    '<head><title>Kapitel</title></head><body><p><a id="x"/>Der <b>alte</b> Mann<br/>schläft.</p>'
    "<pre>bleibt</pre></body></html>",
    "book/nav.xhtml": f'<html {XHTML}><head><title>Inhalt</title></head><body><nav epub:type="toc"><ol><li>'
    '<a href="page%201.xhtml">Erstes Kapitel</a></li></ol></nav></body></html>',
    "book/toc.ncx": '<?xml version="1.0"?><!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" '
    '"http://www.daisy.org/z3986/2005/ncx-2005-1.dtd"><ncx xmlns="http://www.daisy.org/z3986/2005/ncx/" '
    'version="2005-1"><docTitle><text>Der alte Mann</text></docTitle><navMap><navPoint id="p" playOrder="1"><navLabel>'
    '<text>Erstes Kapitel</text></navLabel><content src="page%201.xhtml"/></navPoint></navMap></ncx>',
}


def zipped(parts: dict[str, str], **changed: str) -> bytes:
    """Return a zip file of these parts, of which the first one is not compressed."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for index, (name, content) in enumerate({**parts, **changed}.items()):
            archive.writestr(name, content, zipfile.ZIP_DEFLATED if index else zipfile.ZIP_STORED)
    return stream.getvalue()


FILES = {
    "page.html": HTML,
    "film.srt": SRT,
    "film.vtt": VTT,
    "film.ass": ASS,
    "messages.po": PO,
    "file.xliff": XLIFF,
    "two.xlf": XLIFF_2,
    "trados.sdlxliff": TRADOS,
    "memoq.mqxliff": MEMOQ,
    "angular.xlf": ANGULAR,
    "page.md": MARKDOWN,
    "site.mdx": SITE,
    "table.tsv": TSV,
    "table.csv": CSV,
    "report.docx": docx(),
    "slides.pptx": zipped(PRESENTATION),
    "text.odt": zipped(TEXT),
    "book.epub": zipped(BOOK),
    "de.json": I18NEXT,
    "messages.json": CHROME,
    "app_de.arb": ARB,
    "de.properties": PROPERTIES,
    "de.strings": STRINGS,
    "de.stringsdict": STRINGSDICT,
    "strings.xml": ANDROID,
    "de.resx": RESX,
    "app.ts": QT,
    "de.yml": YAML,
}


def content_of(name: str) -> bytes:
    content = FILES[name]
    return content if isinstance(content, bytes) else content.encode()
