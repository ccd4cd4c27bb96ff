# shellcheck shell=bash
# Installs the Debian packages that are missing on this machine, and touches nothing when all is there. To be sourced.

# need PACKAGE CHECK...: the package is missing when the check fails.
missing=()
need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

# install_missing [tests|duel|benches|training|arm64|amd64]: with what the tests ask, the locks of the duel, the peers that the benchmarks
# are held against, what puts load on a program that counts, or a compiler for another kind of machine.
install_missing() {
    missing=()
    # The linker, and the compiler of SQLite.
    need gcc command -v cc
    need libc6-dev test -e /usr/include/stdio.h
    # Builds the allocator.
    need make command -v make
    # Cargo fetches crates over TLS.
    need ca-certificates test -e "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}"
    # A real ZooKeeper: `libzookeeper-java` is the server too, without the X11 that the package `zookeeper` brings.
    need default-jre-headless command -v java
    need libzookeeper-java test -e /usr/share/java/zookeeper.jar
    need libslf4j-java test -e /usr/share/java/slf4j-simple.jar
    # Children that end with their parent.
    need util-linux command -v setpriv
    if [ "${1-}" = tests ]; then
        # What ZooKeeper speaks TLS with.
        need libnetty-java test -e /usr/share/java/netty-handler.jar
        # Clients that others have written; httpx and undici come from PyPI and npm.
        need curl command -v curl
        need nghttp2-client command -v h2load
        need python3-venv python3 -c 'import ensurepip'
        need nodejs command -v node
        need npm command -v npm
        # Another language that services are written in: how it reads a request.
        need php-cli command -v php
        # Frameworks that merge the sources of a request; Flask comes from PyPI, Express from npm.
        need ruby-railties ruby -e 'require "rails"'
        need ruby-webrick ruby -e 'require "webrick"'
        # What they take for one row of a database.
        need ruby-activerecord ruby -e 'require "active_record"'
        need ruby-sqlite3 ruby -e 'require "sqlite3"'
        need golang-github-labstack-echo-dev test -d /usr/share/gocode/src/github.com/labstack/echo
        need libspring-web-servlet-java test -e /usr/share/java/spring3-web.servlet.jar
        need libtomcat9-java test -e /usr/share/java/tomcat9-catalina.jar
        need libjackson2-databind-java test -e /usr/share/java/jackson-databind.jar
        # The page, in a browser.
        need chromium command -v chromium
        need chromium-driver command -v chromedriver
        # It watches a live installation with the shipped rules and dashboards.
        need prometheus command -v prometheus
        need prometheus-alertmanager command -v amtool
        # The readers of what is shipped beside the binary; others of them come from PyPI.
        need kubernetes-client command -v kubectl
        need shellcheck command -v shellcheck
        need yamllint command -v yamllint
        need systemd command -v systemd-analyze
        need lintian command -v lintian
        need rpm command -v rpm
        # Databases that run the statements of deploy/docs/SERVICES.md and of deploy/upstream.
        need postgresql sh -c 'ls /usr/lib/postgresql/*/bin/postgres'
        need mariadb-server test -x /usr/sbin/mariadbd
        need redis-server command -v redis-server
        # The languages of its middlewares, with a server and a driver of the database each; those of Node come from npm.
        need golang-go command -v go
        need golang-github-lib-pq-dev test -e /usr/share/gocode/src/github.com/lib/pq/go.mod
        # A client of Go that repeats.
        need golang-github-hashicorp-go-retryablehttp-dev test -d /usr/share/gocode/src/github.com/hashicorp/go-retryablehttp
        need default-jdk-headless command -v javac
        need libtomcat10-java test -e /usr/share/java/tomcat10-catalina.jar
        # Locks that Java services have, to stand in one line with; kazoo comes from PyPI.
        need libcurator-recipes-java test -e /usr/share/java/curator-recipes.jar
        need libpostgresql-jdbc-java test -e /usr/share/java/postgresql.jar
        # The model checker, and a compiler that translates a search in no time where the search itself is short.
        need spin command -v spin
        need tcc command -v tcc
        # Proxies to compare with, and clients that speak HTTP/2 exactly as they are told, or abuse it.
        need nginx-light test -x /usr/sbin/nginx
        need libnginx-mod-http-js test -e /usr/lib/nginx/modules/ngx_http_js_module.so
        need haproxy test -x /usr/sbin/haproxy
        need caddy test -x /usr/bin/caddy
        need varnish command -v varnishtest
        need nghttp2-client command -v h2load
        need slowhttptest command -v slowhttptest
        # Networks that lose packets, and disks that are slow or fail.
        need iproute2 command -v ip
        need nftables test -x /usr/sbin/nft
        need strace command -v strace
    fi
    if [ "${1-}" = duel ]; then
        # What keeps locks; kazoo, redis-py, pottery and a driver of PostgreSQL come from PyPI, Restate from npm.
        need libcurator-recipes-java test -e /usr/share/java/curator-recipes.jar
        need default-jdk-headless command -v javac
        need redis-server command -v redis-server
        need etcd-server command -v etcd
        need postgresql sh -c 'ls /usr/lib/postgresql/*/bin/postgres'
        need python3-venv python3 -c 'import ensurepip'
        need nodejs command -v node
        need npm command -v npm
    fi
    if [ "${1-}" = training ] || [ "${1-}" = benches ]; then
        need wrk command -v wrk
        need nginx-light test -x /usr/sbin/nginx
        # HTTP/2.
        need nghttp2-client command -v h2load
    fi
    if [ "${1-}" = benches ]; then
        need haproxy test -x /usr/sbin/haproxy
        need caddy test -x /usr/bin/caddy
        # Pingora brings a zlib that is made with it.
        need cmake command -v cmake
        # What else keeps locks; redis-py comes from PyPI, Restate from npm.
        need redis-server command -v redis-server
        need etcd-server command -v etcd
        need python3-venv python3 -c 'import ensurepip'
        need nodejs command -v node
        need npm command -v npm
        # The store of guards that share one.
        need postgresql sh -c 'ls /usr/lib/postgresql/*/bin/postgres'
        # Counts instructions.
        need valgrind command -v callgrind_control
        need libcurator-recipes-java test -e /usr/share/java/curator-recipes.jar
        # A compiler for the few lines that use Curator.
        need default-jdk-headless command -v javac
    fi
    if [ "${1-}" = arm64 ]; then
        need gcc-aarch64-linux-gnu command -v aarch64-linux-gnu-gcc
        need libc6-dev-arm64-cross test -e /usr/aarch64-linux-gnu/lib/libc.a
        # Runs what was built.
        need qemu-user command -v qemu-aarch64
    fi
    if [ "${1-}" = amd64 ]; then
        need gcc-x86-64-linux-gnu command -v x86_64-linux-gnu-gcc
        need libc6-dev-amd64-cross test -e /usr/x86_64-linux-gnu/lib/libc.a
        need qemu-user command -v qemu-x86_64
    fi
    [ ${#missing[@]} -gt 0 ] || return 0

    local become_root=()
    [ "$(id -u)" -eq 0 ] || become_root=(sudo)
    if ! command -v apt-get >/dev/null || ! command -v "${become_root[@]:-true}" >/dev/null; then
        echo "missing: ${missing[*]} (Debian's names); install them and try again" >&2
        return 1
    fi
    quietly "installing: ${missing[*]}" apt_installs || return
    stay_stopped
}

# room_for GIB: refuses where cargo would run out of disk. What is built already is counted as room.
room_for() {
    local target=${CARGO_TARGET_DIR:-target} free built
    mkdir -p "$target" || return
    free=$(df --output=avail --block-size=1M "$target" | tail -n 1)
    [ "$free" -lt $(($1 * 1024)) ] || return 0
    built=$(du --summarize --block-size=1M "$target" | cut -f 1)
    [ $((free + built)) -lt $(($1 * 1024)) ] || return 0
    echo "too little room in $(readlink -f "$target"): a first build takes $1 GiB there, and $((free / 1024)) GiB are free;" \
        "make room, or set CARGO_TARGET_DIR to a folder on another disk" >&2
    return 1
}

# Servers are wanted as programs: offline, systemd starts none of them.
apt_installs() {
    "${become_root[@]}" apt-get update -qq &&
        "${become_root[@]}" env DEBIAN_FRONTEND=noninteractive SYSTEMD_OFFLINE=1 RUNLEVEL=1 \
            apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "${missing[@]}"
}

# quietly WHAT COMMAND...: says in one line what is done and where the command's output is. Where it fails, that is shown.
# Standard output belongs to whoever called us.
quietly() {
    local what=$1 log
    shift
    log=$(mktemp "${TMPDIR:-/tmp}/fencegate-XXXXXX.log") || return
    echo "$what (output: $log)" >&2
    if "$@" >"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    show_failure "$log"
}

# show_failure LOG: the end of what a command has written, and where all of it is. Fails.
show_failure() {
    tail -n 40 "$1" >&2
    echo "failed; all of its output: $1" >&2
    return 1
}

# building ARGUMENTS...: `cargo build`, and a line that says how many crates of all are built. Says nothing where all are.
building() {
    local all log packages
    read -ra packages < <(packages_of "$@")
    all=$(cargo tree --quiet --locked --edges normal,build --prefix none --format '{p}' "${packages[@]}" | sed 's/ (\*)$//' | sort -u | wc -l)
    log=$(mktemp "${TMPDIR:-/tmp}/fencegate-XXXXXX.log") || return
    if cargo build --message-format json-render-diagnostics "$@" 2>"$log" | count_crates "$all" >&2; then
        rm -f "$log"
        return 0
    fi
    show_failure "$log"
}

# The part of what `cargo build` is told that says which packages, for `cargo tree`.
packages_of() {
    while [ $# -gt 0 ]; do
        case $1 in
            -p) printf '%s %s ' "$1" "$2" && shift ;;
            --no-default-features) printf '%s ' "$1" ;;
        esac
        shift
    done
    echo
}

# count_crates ALL: reads the messages of cargo. On a terminal the line stays where it is; elsewhere each twentieth part is a line.
count_crates() {
    local terminal=no
    [ ! -t 2 ] || terminal=yes
    awk -v all="$1" -v terminal="$terminal" '
        /"reason":"compiler-artifact"/ && !/"kind":\["custom-build"\]/ && match($0, /"package_id":"[^"]*"/) {
            package = substr($0, RSTART, RLENGTH)
            if (package in built) next
            built[package]
            n++
            if (/"fresh":false/) stale = 1
            if (!stale) next
            line = "building: " n " of " all " crates"
            if (terminal == "yes") printf "\r%s", line
            else if (int(n * 20 / all) > shown) { shown = int(n * 20 / all); print line }
            fflush()
        }
        END { if (stale && terminal == "yes") print "" }'
}

# Nor are those that were just installed to start with the machine.
stay_stopped() {
    command -v systemctl >/dev/null || return 0
    local package units=()
    for package in "${missing[@]}"; do
        case $package in
            nginx-light) units+=(nginx) ;;
            varnish) units+=(varnish varnishncsa) ;;
            mariadb-server) units+=(mariadb) ;;
            etcd-server) units+=(etcd) ;;
            caddy | haproxy | postgresql | prometheus | prometheus-alertmanager | redis-server) units+=("$package") ;;
        esac
    done
    [ ${#units[@]} -eq 0 ] || "${become_root[@]}" env SYSTEMD_OFFLINE=1 systemctl disable --quiet "${units[@]}" >&2 || true
}

# What builds a Debian package and an RPM, and writes the bill of materials (not for `packages`).
install_packagers() {
    cargo deb --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-deb || return
    cargo generate-rpm --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-generate-rpm || return
    [ "${1-}" != packages ] || return 0
    cargo cyclonedx --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-cyclonedx
}

# The triple of the kind of machine that this is.
this_machine() {
    rustc -vV | sed -n 's/^host: //p'
}

# What Debian calls the tools for the kind of machine of a triple: x86_64-linux-gnu.
tools_for() {
    echo "${1/-unknown/}"
}

# prepare_cross TRIPLE: what builds for another kind of machine, and runs what was built. Almost nothing for our own.
prepare_cross() {
    local triple=$1 tools debian
    # Pages of 4, 16 or 64 KiB, as the kernel has it: the allocator has to be built for the largest.
    case $triple in aarch64-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac
    [ "$triple" != "$(this_machine)" ] || return 0
    tools=$(tools_for "$triple")
    case $triple in
        aarch64-unknown-linux-gnu) debian=arm64 ;;
        x86_64-unknown-linux-gnu) debian=amd64 ;;
        *) echo "$triple is no kind of machine that Fencegate is built for: aarch64-unknown-linux-gnu, x86_64-unknown-linux-gnu" >&2 && return 1 ;;
    esac
    install_missing "$debian" || return
    local kind=${triple//-/_}
    export "CARGO_TARGET_${kind^^}_LINKER=$tools-gcc"
    [ -d "$(rustc --print target-libdir --target "$triple")" ] || rustup target add "$triple" >&2
}

# as_machine TRIPLE COMMAND...: runs a program that was built for that kind of machine.
as_machine() {
    local triple=$1
    shift
    if [ "$triple" = "$(this_machine)" ]; then "$@"; else "qemu-${triple%%-*}" "$@"; fi
}

# stripped TRIPLE FILE TO
stripped() {
    local strip=strip
    [ "$1" = "$(this_machine)" ] || strip=$(tools_for "$1")-strip
    "$strip" -o "$3" "$2"
}

# What changes code to see whether its tests notice.
install_mutator() {
    cargo mutants --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-mutants
}

# The path of the tool that merges what programs have counted. It is of the same release as the compiler.
merger() {
    local tool
    tool=$(rustc --print target-libdir)/../bin/llvm-profdata
    [ -x "$tool" ] || rustup component add llvm-tools >&2 || {
        echo "llvm-profdata is missing: 'rustup component add llvm-tools' installs it" >&2
        return 1
    }
    readlink -e "$tool"
}

find_cargo() {
    command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
    command -v cargo >/dev/null || {
        echo "cargo is missing: install Rust 1.95 or newer from https://rustup.rs (Debian's own is older), and try again" >&2
        return 1
    }
}
