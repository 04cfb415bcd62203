"""The options of `test_consumer.py`."""


def pytest_addoption(parser):
    group = parser.getgroup("conformance")
    for option, argument in (("from-dlpack", "a producer"), ("from-cai", "an object with an interface dict")):
        group.addoption(f"--{option}", metavar="MODULE:FUNCTION", help=f"the consumer under test, called with {argument}")
