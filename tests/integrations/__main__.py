"""`python -m tests.integrations [HOST ...]`: set up the environments of hosts, or of all, and run their tests."""

from __future__ import annotations

import subprocess
import sys

from tests.integrations.environments import HOSTS, ROOT, command, folder, setup


def main(hosts: list[str]) -> int:
    """The exit status says whether all tests passed."""
    unknown = sorted(set(hosts) - set(HOSTS))
    if unknown:
        print(f"There is no host {', '.join(unknown)}. Choose from {', '.join(HOSTS)}.", file=sys.stderr)
        return 2
    failed = []
    for host in hosts or HOSTS:
        print(f"==> {host}: {folder(host)}", flush=True)
        setup(host)
        if subprocess.run([*command(host), "-rs"], cwd=ROOT, check=False).returncode:
            failed.append(host)
    print(f"Failed: {', '.join(failed)}" if failed else "All passed")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
