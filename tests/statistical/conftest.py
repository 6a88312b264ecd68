"""What audits have shown, told below the results of the tests."""


def pytest_terminal_summary(terminalreporter):
    """Tell what the audits have recorded, whoever has run them."""
    reports = [report for of_outcome in ("passed", "failed") for report in terminalreporter.getreports(of_outcome)]
    properties = [of for report in reports if report.when == "call" for of in report.user_properties]
    told = [text for name, text in properties if name == "audit"]
    if told:
        terminalreporter.section("audits")
        for text in told:
            terminalreporter.write_line(str(text))
