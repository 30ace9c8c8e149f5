"""What only imported parts can tell of a plan, found in another process."""

import json

from tests.processes import printed_by

TELL = """
import json, sys
from isotrain.config.compose import compose_run
from isotrain.training.requirements import late_mistakes_apart
common = ["task=wic", "encoder=tiny", "source=demo"]
no_data = ["source=local", "source.root=nowhere"]
own = ([], ["isotropy=zca", "+isotropy.colour=red"], no_data)
configs = [compose_run([*common, *more]) for more in own]
found = late_mistakes_apart(configs)
print(json.dumps([found, "torch" in sys.modules]))
"""


def test_parts_are_judged_in_another_process_which_imports_torch(tmp_path):
    printed = printed_by("-c", TELL, cwd=tmp_path)
    (sound, of_part, of_data), imported = json.loads(printed.splitlines()[-1])
    assert not imported
    mistakes, monitor, mode, data = sound
    assert (mistakes, monitor, mode) == ([], "accuracy", "max")
    assert data.startswith("demo")
    assert "isotropy.colour" in of_part[0][0]
    assert "nowhere" in of_data[0][0]
    assert of_part[1:] == of_data[1:] == [None, None, ""]
