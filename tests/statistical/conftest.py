"""What audits have shown, told below the results of the tests."""


def pytest_terminal_summary(terminalreporter):
    """Tell what the audits have recorded, whoever has run them."""
    reports = [report for of_outcome in ("passed", "failed") for report in terminalreporter.getreports(of_outcome)]
    told = [
        text for report in reports if report.when == "call" for name, text in report.user_properties if name == "audit"
    ]
    if told:
        terminalreporter.section("audits")
        for text in told:
            terminalreporter.write_line(str(text))
