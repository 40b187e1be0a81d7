# Sourced by the scripts of clients/: installs pinned tools outside the clone, so that a second run is fast.

tools="${XDG_CACHE_HOME:-$HOME/.cache}/rewards-ledger/tools"

# Installs npm packages, unless they are there, and prints the directory that contains node_modules:
#     npm_tools NAME PACKAGE@VERSION...
npm_tools() {
    local directory="$tools/$1-$(printf '%s\n' "${@:2}" | sha256sum | cut -c1-12)"
    if [ ! -d "$directory" ]; then
        mkdir -p "$tools"
        local unfinished
        unfinished=$(mktemp -d "$directory.XXXXXX")
        npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$unfinished" "${@:2}" >&2
        # Another run may have been faster.
        mv -T "$unfinished" "$directory" 2>/dev/null || rm -rf "$unfinished"
    fi
    printf '%s\n' "$directory"
}

# Installs Python packages into a virtual environment, unless they are there, and prints its directory:
#     pip_tools NAME PACKAGE==VERSION...
# The variable PYTHON names another interpreter than python3.
pip_tools() {
    local python="${PYTHON:-python3}"
    local directory="$tools/$1-$(printf '%s\n' "$python" "${@:2}" | sha256sum | cut -c1-12)"
    # A virtual environment contains its own path, so it is made in place and marked when it is complete.
    if [ ! -e "$directory/complete" ]; then
        mkdir -p "$tools"
        "$python" -m venv --clear "$directory" >&2
        "$directory/bin/pip" install --quiet --disable-pip-version-check "${@:2}" >&2
        touch "$directory/complete"
    fi
    printf '%s\n' "$directory"
}
