# For scripts that set something up: what they say, and how they install Debian packages. Sourced.

say() { echo "set-up: $*"; }

fail() {
  echo "set-up: $*" >&2
  exit 1
}

apt_install() {
  local -a as_root=()
  command -v apt-get >/dev/null || fail "$* missing and no apt-get here: install them by hand."
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "run 'apt-get install $*' as root, then this again."
    as_root=(sudo)
  fi
  say "${as_root[*]:+sudo }apt-get install $*"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}
