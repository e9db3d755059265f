"""The result of a check as JUnit XML, which CI systems show: a test case for each page. Pure."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from prerender.tools.check.findings import Finding
from prerender.tools.check.site import Result

# XML 1.0 section 2.2.
_NOT_FOR_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(site: str, result: Result, failure: str = "") -> bytes:
    """Errors are failures; other findings are the output of their test case.

    ``failure``: why the whole site fails, or "".
    """
    suite = ET.Element("testsuite", name=f"prerender check {site}")
    for report in result.pages:
        _case(suite, report.url, report.findings, report.seconds)
    of_site = _case(suite, site, result.site, 0.0)
    if failure:
        ET.SubElement(of_site, "failure", message=failure)
    failed = sum(case.find("failure") is not None for case in suite)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failed))
    ET.indent(suite)
    text: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(suite: ET.Element, name: str, findings: Sequence[Finding], seconds: float) -> ET.Element:
    case = ET.SubElement(
        suite, "testcase", classname="prerender", name=_text(name), time=f"{seconds:.3f}"
    )
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        failure = ET.SubElement(case, "failure", message=_text(errors[0].text), type=errors[0].code)
        failure.text = "\n".join(f"{one.code}: {_text(one.text)}" for one in errors)
    others = [finding for finding in findings if finding.level != "error"]
    if others:
        output = ET.SubElement(case, "system-out")
        output.text = "\n".join(f"{one.level}: {one.code}: {_text(one.text)}" for one in others)
    return case


def _text(text: str) -> str:
    return _NOT_FOR_XML.sub("", text)
