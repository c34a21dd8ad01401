# shellcheck shell=bash
# What the scripts share. Sourced, with `set -euo pipefail` already in force.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=${0##*/}

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$name: $*"
  exit 1
}

# A child that was interrupted ends first, then the script.
trap 'say; say "$name: interrupted"; exit 130' INT

# The comment at the head of a script is its help.
print_help() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; }

# run_logged LOG WHAT COMMAND...: quiet; on failure the end of the log and where the rest is.
run_logged() {
  local log=$1 what=$2 start=$SECONDS
  shift 2
  mkdir -p "$(dirname "$log")"
  say "$what ..."
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    die "$what failed; the whole output is in ${log#"$root"/}"
  fi
  say "$what: done in $((SECONDS - start)) s"
}

cores() { nproc; }

# Objects that several presets share are compiled once.
export CCACHE_BASEDIR="$root"
