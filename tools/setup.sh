#!/usr/bin/env bash
# Installs what is missing and nothing else; on a machine that has everything it changes nothing and says nothing.
#
#   tools/setup.sh demo    what a build needs: a linker, curl, the Rust toolchain
#   tools/setup.sh test    and what the tests use
#   tools/setup.sh apps    what `make test-apps` runs behind the accelerator: applications and their clients
#   tools/setup.sh soak    what `make soak` uses in addition to the tests
#   tools/setup.sh bench   what `make bench-peers` compares with
#
# Debian and Ubuntu. Needs root, or sudo, only when a package is missing. No service that a package brings is started.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Where Go's own archive puts it.
export PATH=$PATH:/usr/local/go/bin

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
# Only programs count: the shell's own kill is of no use to a test.
has() { [ -n "$(type -P "$1")" ] || [ -x "/usr/sbin/$1" ]; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif has sudo; then
    sudo "$@"
  else
    fail "root is needed for: $*"
  fi
}

# What a program needs stands beside the package that brings it.
demo_programs=(cc:gcc make:make curl:curl)
test_programs=(
  git:git kill:procps strace:strace valgrind:valgrind prlimit:util-linux setpriv:util-linux renice:bsdutils unshare:util-linux ip:iproute2 openssl:openssl python3:python3
  systemd-analyze:systemd man:man-db tc:iproute2 ss:iproute2 cmake:cmake g++:g++
  ab:apache2-utils aria2c:aria2 wget:wget h2load:nghttp2-client httperf:httperf wrk:wrk chromium:chromium go:golang-go
  node:nodejs npm:npm nginx:nginx hey:hey
  apache2:apache2-bin lighttpd:lighttpd varnishd:varnish ip:iproute2 promtool:prometheus slowhttptest:slowhttptest
)
bench_programs=(
  wrk:wrk h2load:nghttp2-client ab:apache2-utils openssl:openssl kill:procps taskset:util-linux setpriv:util-linux
  nginx:nginx lighttpd:lighttpd apache2:apache2-bin h2o:h2o
  varnishd:varnish haproxy:haproxy caddy:caddy traffic_server:trafficserver node:nodejs npm:npm php:php-cli python3:python3
)
apps_programs=(
  apt-ftparchive:apt-utils aria2c:aria2 dpkg-deb:dpkg ffmpeg:ffmpeg git:git kill:procps lighttpd:lighttpd mariadbd:mariadb-server-core
  nginx:nginx node:nodejs npm:npm openssl:openssl php:php-cli python3:python3
)
# Files that no program stands for.
demo_files=(/usr/include/stdlib.h:libc6-dev /etc/ssl/certs/ca-certificates.crt:ca-certificates)
bench_files=(
  /usr/lib/nginx/modules/ngx_http_lua_module.so:libnginx-mod-http-lua /usr/share/doc/php-fpm:php-fpm
  /usr/share/doc/php-sqlite3:php-sqlite3
)
test_files=(
  /usr/share/doc/python3-doc/html/index.html:python3-doc
  /usr/share/dokuwiki/doku.php:dokuwiki /usr/share/doc/php-fpm:php-fpm
  /usr/lib/nginx/modules/ngx_http_lua_module.so:libnginx-mod-http-lua
)
apps_files=(
  /usr/share/doc/php-fpm:php-fpm /usr/share/doc/php-intl:php-intl /usr/share/doc/php-mysql:php-mysql
  /usr/share/doc/php-sqlite3:php-sqlite3 /usr/share/mediawiki/index.php:mediawiki
  /usr/share/wordpress/wp-login.php:wordpress
  /usr/share/wordpress/wp-content/themes/twentytwentyone/style.css:wordpress-theme-twentytwentyone
)
# Tools that no package brings, with the versions that the tests are held against. All checkouts share them: they are in
# the user's cache, and target/tools leads there.
tools=${XDG_CACHE_HOME:-${HOME:?}/.cache}/flatout/tools
caddy_version=v2.11.9 nginx_release=trixie
h2spec_version=v2.2.1+incompatible
h2spec_needs=(golang.org/x/net@v0.17.0 github.com/spf13/cobra@v1.7.0 github.com/fatih/color@v1.15.0)
sslyze_version=6.3.1
redbot_version=2.7.1 httplint_version=2026.10.4
grpcio_version=1.85.1
http2_python=(h2==4.3.0 hpack==4.1.0)
http3_python=(aioquic==1.7.2 pycurl==7.49.0)
cargo_deny_version=0.20.2
cache_tests_version=0.4.5 ws_version=8.23.0
apps_python=(django==5.2.19 gunicorn==27.0.1 "grpcio==$grpcio_version")
apps_node=(express@5.3.0 express-session@1.19.0 cookie-parser@1.4.7 socket.io@4.8.4 socket.io-client@4.8.4)
# From this version on, Go fetches the newer one that a module needs.
go_version_least=1.21

# Ubuntu has its browser as a snap only, which no container can run; not every release has h2o.
optional_packages=(chromium h2o)

profile=${1:-}
programs=() files=()
case "$profile" in
  demo) programs=("${demo_programs[@]}") files=("${demo_files[@]}") ;;
  test | soak) programs=("${demo_programs[@]}" "${test_programs[@]}") files=("${demo_files[@]}" "${test_files[@]}") ;;
  bench) programs=("${demo_programs[@]}" "${bench_programs[@]}") files=("${demo_files[@]}" "${bench_files[@]}") ;;
  apps) programs=("${demo_programs[@]}" "${apps_programs[@]}") files=("${demo_files[@]}" "${apps_files[@]}") ;;
  *) fail "usage: tools/setup.sh demo|test|apps|soak|bench" ;;
esac

missing_packages() {
  local pair
  for pair in "${programs[@]}"; do has "${pair%%:*}" || echo "${pair#*:}"; done
  for pair in "${files[@]}"; do [ -e "${pair%%:*}" ] || echo "${pair#*:}"; done
}

# Checks licences, advisories and sources of dependencies. It compiles for minutes.
install_cargo_deny() {
  if has cargo-deny; then return 0; fi
  say "installing cargo-deny $cargo_deny_version"
  cargo install --quiet --locked --version "$cargo_deny_version" cargo-deny
}

install_packages() {
  local -a packages options
  mapfile -t packages < <(missing_packages | sort -u)
  [ "${#packages[@]}" -gt 0 ] || return 0
  has apt-get || fail "please install: ${packages[*]} (only Debian and Ubuntu are known here)"
  # A fresh image has no package lists; an old one has lists of packages that are gone.
  as_root "${apt_get[@]}" update || say "the package lists could not be refreshed; trying with those at hand"
  mapfile -t packages < <(obtainable "${packages[@]}")
  [ "${#packages[@]}" -gt 0 ] || return 0
  say "installing ${packages[*]}"
  # Container images often leave documents out when they unpack packages; the one we serve in a test must come whole.
  options=(-o 'DPkg::Options::=--path-include=/usr/share/doc/python3*')
  without_starting_services apt_get_install "${options[@]}" "${packages[@]}"
  mapfile -t packages < <(missing_packages | sort -u | grep -vxF "${optional_packages[@]/#/-e}")
  if [ "${#packages[@]}" -gt 0 ]; then
    # Installed earlier, but without the files we look for. A package of documents often only names the one that
    # holds them.
    mapfile -t -O "${#packages[@]}" packages < <(
      dpkg-query -W -f '${Depends}\n' "${packages[@]}" | grep -o '[a-z0-9.+-]*-doc\b' | sort -u
    )
    without_starting_services apt_get_install --reinstall "${options[@]}" "${packages[@]}"
  fi
  mapfile -t packages < <(missing_packages | sort -u | grep -vxF "${optional_packages[@]/#/-e}")
  [ "${#packages[@]}" -eq 0 ] || fail "still missing after installing: ${packages[*]}"
}

apt_get=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)

apt_get_install() { as_root "${apt_get[@]}" install --yes --no-install-recommends "$@" >&2; }

has_candidate() { LC_ALL=C apt-cache policy "$1" | grep 'Candidate: [^(]' >/dev/null; }

# Of these packages, all but the optional ones that this system does not have.
obtainable() {
  local package
  for package in "$@"; do
    if has_candidate "$package" || ! [[ " ${optional_packages[*]} " == *" $package "* ]]; then
      echo "$package"
    else
      say "NOTE: this system has no package $package; what needs it cannot pass here"
    fi
  done
}

# Left behind, it would keep every service of later installations from starting.
policy=/usr/sbin/policy-rc.d
policy_is_ours=
remove_policy() {
  [ -n "$policy_is_ours" ] || return 0
  policy_is_ours=
  as_root rm -f "$policy"
}
trap remove_policy EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Units of systemd, each with its program.
services=(
  nginx:nginx lighttpd:lighttpd apache2:apache2 h2o:h2o varnish:varnishd varnishncsa:varnishd haproxy:haproxy
  trafficserver:traffic_server
)

# Packages of servers start them at once and at every boot. We want their programs only.
without_starting_services() {
  local code=0 service
  local -a newly=()
  for service in "${services[@]}"; do has "${service#*:}" || newly+=("$service"); done
  compgen -G '/usr/sbin/php-fpm*' >/dev/null || newly+=(php-fpm:php-fpm)
  if [ ! -e "$policy" ]; then
    policy_is_ours=yes
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 0755 "$policy"
  fi
  "$@" || code=$?
  remove_policy
  if [ -d /run/systemd/system ]; then
    for service in "${newly[@]}"; do
      if [ "$service" = php-fpm:php-fpm ]; then
        # Its unit has its version in its name.
        for service in /lib/systemd/system/php*-fpm.service; do
          [ ! -e "$service" ] || as_root systemctl disable --now --quiet "$(basename "$service")" || true
        done
      elif has "${service#*:}"; then
        as_root systemctl disable --now --quiet "${service%%:*}" || true
      fi
    done
  fi
  return "$code"
}

# The toolchain that rust-toolchain.toml asks for.
toolchain_value() { sed -n "s/^$1 *= *//p" rust-toolchain.toml | tr -d '"[],'; }

is_at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# A cargo that is no rustup's knows nothing of toolchain files; it will do if it is new enough and has its tools.
plain_cargo_suffices() {
  local version
  version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || return 1
  [ -n "$version" ] && is_at_least "$1" "$version" || return 1
  [ "$profile" = demo ] || { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1
}

install_rust() {
  local channel components component
  channel=$(toolchain_value channel)
  components=$(toolchain_value components)
  [ -n "$channel" ] || fail "rust-toolchain.toml names no channel"
  export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  if ! has rustup; then
    if plain_cargo_suffices "$channel"; then return 0; fi
    install_rustup
  fi
  # grep reads to the end (no -q): a closed pipe would look like a missing toolchain.
  if ! rustup toolchain list | grep "^$channel\(-\| \|$\)" >/dev/null; then
    say "installing Rust $channel"
    rustup toolchain install "$channel" --no-self-update --profile minimal
  fi
  for component in $components; do
    if ! rustup component list --toolchain "$channel" | grep "^$component.*(installed)" >/dev/null; then
      rustup component add --toolchain "$channel" "$component"
    fi
  done
}

install_rustup() {
  # Debian 13 and Ubuntu 24.04 package it; what they package gets their updates.
  if has_candidate rustup; then
    say "installing rustup"
    if apt_get_install rustup && has rustup; then return 0; fi
  fi
  # The script that rustup.rs serves, from the host that the toolchain itself comes from.
  say "installing rustup from static.rust-lang.org"
  curl --proto '=https' --tlsv1.2 --silent --show-error --fail https://static.rust-lang.org/rustup/rustup-init.sh |
    sh -s -- -y --quiet --no-modify-path --profile minimal --default-toolchain none
}

is_go_new() { has go && is_at_least "$go_version_least" "$(go version | sed 's/.* go\([0-9.]*\).*/\1/')"; }

install_go() {
  if is_go_new; then return 0; fi
  programs=(go:golang-go) files=()
  install_packages
  if is_go_new; then return 0; fi
  # Debian 12 has a newer one in its backports.
  local folder release
  local -a from
  release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  folder=$(mktemp -d)
  mkdir -p "$folder/lists/partial"
  for suite in "$release" "$release-backports"; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main"
  done >"$folder/sources.list"
  from=(-o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$folder/lists"
    -o APT::Sandbox::User=root)
  as_root "${apt_get[@]}" "${from[@]}" update
  apt_get_install "${from[@]}" --target-release "$release-backports" golang-go
  rm -rf "$folder"
  is_go_new || fail "Go $go_version_least or newer is needed, and this system has $(go version)"
}

# h2spec, the conformance suite of HTTP/2, is a Go program.
install_h2spec() {
  if [ -x "$tools/bin/h2spec" ] && [ "$(cat "$tools/h2spec.version" 2>/dev/null)" = "$h2spec_version" ]; then return 0; fi
  install_go
  say "installing h2spec $h2spec_version"
  mkdir -p "$tools/bin"
  # It says of no version of what it needs; the newest would want a newer Go than Debian 12 has.
  local module
  module=$(mktemp -d)
  (
    export GOBIN="$tools/bin" GOFLAGS=-modcacherw
    cd "$module"
    go mod init example.org/h2spec
    go get "github.com/summerwind/h2spec/cmd/h2spec@$h2spec_version" "${h2spec_needs[@]}"
    go install github.com/summerwind/h2spec/cmd/h2spec
  ) >"$module/log" 2>&1 || { cat "$module/log" >&2; fail "h2spec could not be built"; }
  rm -rf "$module"
  echo "$h2spec_version" >"$tools/h2spec.version"
}

# Peers that speak HTTP/3, which Debian's stable nginx does not and its Caddy does as of 2022. Debian's own archive has
# the source of nginx.
install_http3_peers() {
  local folder
  mkdir -p "$tools/bin"
  if [ ! -x "$tools/bin/nginx-quic" ]; then
    programs=(make:make gcc:gcc) files=(/usr/include/openssl/ssl.h:libssl-dev /usr/include/zlib.h:zlib1g-dev)
    install_packages
    say "building nginx with HTTP/3"
    folder=$(mktemp -d)
    (
      cd "$folder"
      mkdir -p lists/partial
      keyring=/usr/share/keyrings/debian-archive-keyring.gpg
      echo "deb-src [signed-by=$keyring] http://deb.debian.org/debian $nginx_release main" >sources.list
      from=(-o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$folder/lists"
        -o APT::Sandbox::User=root)
      apt-get "${from[@]}" update
      apt-get "${from[@]}" source --download-only --tar-only nginx
      mkdir nginx
      tar xf nginx_*.orig.tar.gz --strip-components=1 -C nginx
      cd nginx
      ./configure --with-http_v3_module --with-http_v2_module --with-http_ssl_module --with-http_stub_status_module \
        --without-http_rewrite_module --with-cc-opt='-O2 -fstack-protector-strong -Wp,-D_FORTIFY_SOURCE=2 -fPIC'
      make
    ) >"$folder/log" 2>&1 || { tail -n 40 "$folder/log" >&2; fail "nginx with HTTP/3 could not be built"; }
    cp "$folder/nginx/objs/nginx" "$tools/bin/nginx-quic"
    rm -rf "$folder"
  fi
  if [ ! -x "$tools/bin/caddy" ]; then
    install_go
    say "installing Caddy $caddy_version"
    folder=$(mktemp -d)
    (
      export GOBIN="$tools/bin" GOFLAGS=-modcacherw
      cd "$folder"
      go mod init example.org/caddy
      go install -ldflags "-X github.com/caddyserver/caddy/v2.CustomVersion=$caddy_version" \
        "github.com/caddyserver/caddy/v2/cmd/caddy@$caddy_version"
    ) >"$folder/log" 2>&1 || { cat "$folder/log" >&2; fail "Caddy could not be built"; }
    rm -rf "$folder"
  fi
}

# Python programs, each with what it needs in a folder of its own.
install_python_program() {
  local folder=$tools/$1 package installed=yes
  shift
  for package in "$@"; do
    compgen -G "$folder/lib/python*/site-packages/${package/==/-}.dist-info" >/dev/null || installed=
  done
  [ -z "$installed" ] || return 0
  # The module that makes environments is a package of its own on Debian.
  if ! python3 -c 'import ensurepip' 2>/dev/null; then
    as_root "${apt_get[@]}" update || true
    apt_get_install python3-venv
  fi
  say "installing $*"
  mkdir -p "$tools"
  rm -rf "$folder"
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
}

# sslyze knows Mozilla's profiles of TLS.
install_sslyze() { install_python_program sslyze "sslyze==$sslyze_version"; }

# REDbot judges our headers. Its judgements come from httplint, so both are pinned.
install_redbot() {
  if python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    install_python_program redbot "redbot==$redbot_version" "httplint==$httplint_version"
  else
    say "NOTE: REDbot needs Python 3.11; what needs it cannot pass here"
  fi
}

# gRPC as most of its users know it, client and server.
install_grpcio() { install_python_program grpc "grpcio==$grpcio_version"; }

# HTTP/2 in Python: our field compression and our connections are compared with these.
install_http2() { install_python_program http2 "${http2_python[@]}"; }

# Clients of HTTP/3: one in Python, libcurl with ngtcp2, quic-go and quiche.
install_http3() {
  install_python_program http3 "${http3_python[@]}"
  install_built http3-quic-go tests/clients/quic-go build_quic_go
  install_built http3-quiche tools/http3-quiche build_quiche
}

# NAME, FOLDER and COMMAND: has the command build NAME, unless it was built from these files.
install_built() {
  local sum log
  sum=$(find "$2" -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
  if [ -x "$tools/bin/$1" ] && [ "$(cat "$tools/$1.sum" 2>/dev/null)" = "$sum" ]; then return 0; fi
  say "building $1"
  mkdir -p "$tools/bin"
  log=$(mktemp)
  "$3" "$tools" "$2" "$1" >"$log" 2>&1 || { tail -n 40 "$log" >&2; fail "$1 could not be built"; }
  rm "$log"
  echo "$sum" >"$tools/$1.sum"
}

build_quic_go() {
  install_go
  GOFLAGS=-modcacherw go build -C "$2" -trimpath -o "$1/bin/$3" .
}

# Most of the minute that it takes on two cores is BoringSSL.
build_quiche() {
  cargo build --locked --release --manifest-path "$2/Cargo.toml" --target-dir "$1/$3-build"
  cp "$1/$3-build/release/$3" "$1/bin/$3"
  rm -rf "$1/$3-build"
}

# Packages of npm, as NAME@VERSION, with what they need in a folder of their own.
install_node_packages() {
  local folder=$tools/$1 package file installed=yes
  shift
  for package in "$@"; do
    file=$folder/node_modules/${package%@*}/package.json
    { [ -e "$file" ] && grep "\"version\": \"${package##*@}\"" "$file" >/dev/null; } || installed=
  done
  [ -z "$installed" ] || return 0
  say "installing $*"
  rm -rf "$folder"
  mkdir -p "$folder"
  npm install --loglevel=error --no-audit --no-fund --no-save --ignore-scripts --omit=dev --prefix "$folder" "$@" >&2
}

# The cache is held against this.
install_cache_tests() { install_node_packages cache-tests "http-cache-tests@$cache_tests_version"; }

# WebSocket that is not ours, client and server.
install_ws() { install_node_packages ws "ws@$ws_version"; }

# Frameworks, and clients that are not ours.
install_apps() {
  install_python_program apps-python "${apps_python[@]}"
  install_node_packages apps-node "${apps_node[@]}"
}

# Two checkouts may install at the same time.
link_tools() {
  mkdir -p "$tools" target
  if [ ! -L target/tools ]; then rm -rf target/tools; fi
  ln -sfn "$tools" target/tools
  exec 9>"$tools/lock"
  flock 9
}

install_packages
install_rust
if [ "$profile" != demo ]; then link_tools; fi
case "$profile" in test | soak | bench) install_cache_tests ;; esac
if [ "$profile" = test ] || [ "$profile" = soak ]; then
  install_h2spec
  install_sslyze
  install_redbot
  install_grpcio
  install_http2
  install_http3
  install_ws
fi
if [ "$profile" = soak ]; then install_cargo_deny; fi
if [ "$profile" = bench ]; then install_http3_peers; fi
if [ "$profile" = apps ]; then install_apps; fi
