"""One start of a function, timed from inside. Runs on an interpreter that has nothing but the artifact's folder:

    python -I -S -B probe.py FOLDER api '{"verb": "tick"}'

The last line of its output is the result as JSON. What the function prints goes before it.
"""

import time

_BEGAN = time.perf_counter()

import importlib  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402
import types  # noqa: E402
from typing import Any  # noqa: E402


def main(folder: str, artifact: str, event: str) -> dict[str, Any]:
    """Imports the handler, gives it one event, and says what each took."""
    sys.path.insert(0, folder)
    handler = importlib.import_module(f"functions.{artifact}.handler").handler
    imported = time.perf_counter()
    context = types.SimpleNamespace(
        function_name=artifact,
        memory_limit_in_mb=1769,
        invoked_function_arn=f"arn:aws:lambda:us-east-1:123456789012:function:{artifact}",
        aws_request_id="r",
        get_remaining_time_in_millis=lambda: 29_000,
    )
    answer = handler(json.loads(event), context)
    answered = time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "answer": answer,
        "import_ms": round((imported - _BEGAN) * 1000, 1),
        "answer_ms": round((answered - imported) * 1000, 1),
        "cpu_ms": round((used.ru_utime + used.ru_stime) * 1000, 1),
        "modules": sorted(sys.modules),
        "files": sorted(filter(None, (getattr(one, "__file__", None) for one in list(sys.modules.values())))),
    }


if __name__ == "__main__":
    print("\n" + json.dumps(main(*sys.argv[1:])))
