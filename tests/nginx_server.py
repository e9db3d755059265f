"""What every nginx of the tests has in common: in the foreground, all its files in one folder."""

import getpass
import os
import shutil
from pathlib import Path

_MAIN = """
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr {errors};
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {folder}/client_body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
{http}
}}
"""


def configuration(folder: Path, http: str, errors: str = "error") -> str:
    """A whole configuration around what stands in its ``http`` block; ``errors``: the least it logs."""
    user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
    return _MAIN.format(user=user, folder=folder, errors=errors, http=http)


def program() -> str:
    """nginx, which stands outside the PATH of ordinary users."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    assert found, "nginx is not installed: run make test"
    return found
