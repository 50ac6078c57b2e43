"""Pages of the documentation site that are not in docs/: mkdocs calls these hooks (mkdocs.yml).

README files of other folders become pages.  The references of commands and of the HTTP API are made
from what the programs themselves say.  Links from one document to another lead to its page; those
to a file of the source, which has no page, become its name.
"""

from __future__ import annotations

import argparse
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from runwatch.cli.__main__ import COMMANDS, parser
from runwatch.head.feature_table import api_document

ROOT: Final = Path(__file__).parents[1]
DOCUMENTS: Final = {
    # The page's address, and the document in the repository.
    "index.md": "README.md",
    "project/security.md": "SECURITY.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/dropin.md": "dropin/README.md",
    "project/benchmarks.md": "benchmarks/README.md",
    **{
        f"project/{path.parent.name}.md": str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("examples/*/README.md"))
    },
}
_PAGES: Final = {document: page for page, document in DOCUMENTS.items()}
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    made = {
        "reference/commands.md": "\n".join(_commands()),
        "reference/http.md": "\n".join(_operations(api_document())),
        **{page: (ROOT / document).read_text() for page, document in DOCUMENTS.items()},
    }
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    own = page.file.src_uri
    parts = _FENCE.split(markdown)
    # Code stays as it is: every second part is a block of it.
    parts[::2] = [_LINK.sub(lambda link: _led(link, own, files), text) for text in parts[::2]]
    return "".join(parts)


def _led(link: re.Match[str], own: str, files: Files) -> str:
    """A link as the site needs it."""
    picture, text, target = link.groups()
    path, mark, anchor = target.partition("#")
    if not path or "://" in path:
        return link.group()
    document = DOCUMENTS.get(own, f"docs/{own}")
    there = posixpath.normpath(posixpath.join(posixpath.dirname(document), path))
    if not (ROOT / there).exists():
        return link.group()  # mkdocs says so, and the build fails
    page = _PAGES.get(there) or there.removeprefix("docs/")
    if there.startswith("docs/") and (ROOT / there).is_dir():
        page = f"{page}/README.md"
    if files.get_file_from_path(page) is None:
        return f"`{there}`"
    return (
        f"{picture}[{text}]({posixpath.relpath(page, posixpath.dirname(own) or '.')}{mark}{anchor})"
    )


def _commands() -> Iterator[str]:
    yield "# Commands, with all options"
    yield "\nThe same as `runwatch COMMAND --help`. [What all of them do](../commands.md)."
    for name, line in COMMANDS.items():
        command = next(
            action.choices[name]
            for action in parser(name)._actions
            if isinstance(action, argparse._SubParsersAction)
        )
        yield f"\n## {name}\n\n{line[0].upper()}{line[1:]}.\n\n```text\n{command.format_help()}```"


def _operations(api: Mapping[str, Any]) -> Iterator[str]:
    yield "# HTTP operations"
    yield (
        "\nEvery head serves this as an OpenAPI document at `/api/v1/openapi.json`. "
        "[How to ask, and how it answers](../http-api.md)."
    )
    for path, methods in sorted(api["paths"].items()):
        for method, operation in methods.items():
            yield f"\n## {method.upper()} {path}\n\n{operation['summary']}."
            if operation.get("description"):
                yield f"\n{operation['description']}"
            if operation.get("parameters"):
                yield "\n| parameter | in | type | |\n|---|---|---|---|"
                yield from map(_row, operation["parameters"])


def _row(parameter: Mapping[str, Any]) -> str:
    schema = parameter.get("schema", {})
    kind = schema.get("type") or " or ".join(
        str(each.get("type")) for each in schema.get("anyOf", ())
    )
    told = str(parameter.get("description", "")).replace("|", "\\|").replace("\n", " ")
    name = f"**{parameter['name']}**" if parameter.get("required") else parameter["name"]
    return f"| {name} | {parameter['in']} | {kind} | {told} |"
