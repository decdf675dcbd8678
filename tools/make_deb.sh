#!/usr/bin/env bash
# Makes the Debian packages penstock (programs) and libpenstock-dev (libraries and headers):
#   tools/make_deb.sh [--build FOLDER] [OUT]
#
# They come to OUT (default: the working directory). Without --build it builds both from the tree,
# for CPU threads alone, in a folder of its own; with it, it takes a build that is there. A build
# with CUDA is refused: what it needs cannot be named to dpkg.
#
# It needs dpkg-dev and no debhelper. Whose packages they are stands in DEBFULLNAME and DEBEMAIL.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/tools/common.sh"

fail() {
    echo "make_deb.sh: $*" >&2
    exit 1
}

build= out=.
while [ $# -gt 0 ]; do
    case $1 in
        --build)
            [ $# -gt 1 ] || fail "--build: give the folder of a build"
            build=$2
            shift 2
            ;;
        -*) fail "$1 is no option; there is --build FOLDER" ;;
        *)
            out=$1
            shift
            ;;
    esac
done
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture gzip strip; do
    command -v "$tool" >/dev/null || fail "$tool is missing; apt-get install dpkg-dev binutils"
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -z "$build" ]; then
    build=${PENSTOCK_DEB_BUILD_DIR:-$root/build/deb}
    configure "$build" -DCMAKE_BUILD_TYPE=Release -DPENSTOCK_CUDA=OFF -DPENSTOCK_BUILD_TESTS=OFF \
        -DPENSTOCK_BUILD_EXAMPLES=OFF -DCMAKE_INSTALL_PREFIX=/usr \
        -DCMAKE_EXE_LINKER_FLAGS="$(dpkg-buildflags --get LDFLAGS)"
    build "$build"
fi
build=$(cd "$build" && pwd)
[ -f "$build/CMakeCache.txt" ] || fail "--build: $build is no folder of a build"
if grep -q '^CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt"; then
    fail "--build: $build has CUDA in it; configure one with -DPENSTOCK_CUDA=OFF"
fi

number() { sed -n "s/.*define PENSTOCK_VERSION_$1 //p" "$root/include/penstock/version.hpp"; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)-1
architecture=$(dpkg-architecture -qDEB_HOST_ARCH)
maintainer="${DEBFULLNAME:-Penstock maintainers} <${DEBEMAIL:-penstock@users.noreply.github.com}>"
# The same packages from the same tree.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null ||
    date +%s)}
date_text=$(date -u -R -d "@$SOURCE_DATE_EPOCH")

# put FILE... FOLDER: plain files, readable by all.
put() { install -D -m 644 -t "$work/${*: -1}" "${@:1:$#-1}"; }

documents() {
    local package=$1 folder=$work/$1/usr/share/doc/$1
    mkdir -p "$folder"
    {
        echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
        echo "Upstream-Name: Penstock"
        echo
        echo "Files: *"
        echo "Copyright: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y) The authors of Penstock"
        echo "License: Apache-2.0"
        echo " On Debian systems the text of the licence is in"
        echo " /usr/share/common-licenses/Apache-2.0."
    } >"$folder/copyright"
    printf 'penstock (%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
        "$version" "$maintainer" "$date_text" | gzip -9n >"$folder/changelog.Debian.gz"
    gzip -9nc "$root/CHANGELOG.md" >"$folder/changelog.gz"
    chmod 644 "$folder"/*
}

# control PACKAGE SECTION DEPENDS SHORT LONG
control() {
    local size
    size=$(du -sk --apparent-size "$work/$1" | cut -f1)
    mkdir -p "$work/$1/DEBIAN"
    {
        echo "Package: $1"
        echo "Source: penstock"
        echo "Version: $version"
        echo "Architecture: $architecture"
        echo "Maintainer: $maintainer"
        echo "Installed-Size: $size"
        [ -z "$3" ] || echo "Depends: $3"
        [ "$1" != penstock ] || echo "Recommends: fuse3"
        echo "Section: $2"
        echo "Priority: optional"
        echo "Description: $4"
        echo "$5" | sed 's/^/ /'
    } >"$work/$1/DEBIAN/control"
    (cd "$work/$1" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' |
        LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
}

# The libraries that programs are linked with, as packages.
depends_of() {
    mkdir -p "$work/shlibs/debian"
    printf 'Source: penstock\n\nPackage: penstock\nArchitecture: any\n' \
        >"$work/shlibs/debian/control"
    (cd "$work/shlibs" && dpkg-shlibdeps -O "$@" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

programs() {
    local share=$work/penstock/usr/share
    DESTDIR=$work/penstock cmake --install "$build" --prefix /usr --component programs >/dev/null
    strip --strip-unneeded -R .comment -R .note "$work"/penstock/usr/bin/*
    # Debian has its own place for what packages bring to zsh.
    mkdir -p "$share/zsh/vendor-completions"
    mv "$share"/zsh/site-functions/* "$share/zsh/vendor-completions/"
    rmdir "$share/zsh/site-functions"
    gzip -9n "$share"/man/man1/*.1
    put "$root"/contrib/systemd/penstock-mount@.service penstock/lib/systemd/system
    put "$root"/contrib/systemd/*.conf "$root"/contrib/prometheus/* "$root"/contrib/grafana/* \
        penstock/usr/share/doc/penstock/examples
    documents penstock
    control penstock utils "$(depends_of "$work"/penstock/usr/bin/*)" \
        "files for GPU kernels and CPU threads through one page cache" \
        "Programs that look at what Penstock can do on a machine, copy and keep files
through its page cache, serve a directory at another place, tell what running
programs do with it, and measure it; and its applications: searching, collages,
matrices, image stitching and shortest paths. This build runs kernels on CPU
threads."
}

libraries() {
    local depends="libc6-dev" packages
    DESTDIR=$work/libpenstock-dev cmake --install "$build" --prefix /usr \
        --component Unspecified >/dev/null
    find "$work/libpenstock-dev" -name '*.a' -exec strip --strip-debug {} +
    # What pkg-config asks for.
    packages=$(find "$work/libpenstock-dev" -name '*.pc' -exec cat {} +)
    [[ $packages != *liburing* ]] || depends="$depends, liburing-dev"
    [[ $packages != *fuse3* ]] || depends="$depends, libfuse3-dev"
    documents libpenstock-dev
    control libpenstock-dev libdevel "$depends" \
        "files for GPU kernels and CPU threads through one page cache (development)" \
        "Static libraries and headers for programs whose kernels open, read, map and
write the files of the host, with packages for CMake and pkg-config. This build
runs kernels on CPU threads."
}

programs
libraries
for package in penstock libpenstock-dev; do
    find "$work/$package" -type d -exec chmod 755 {} +
    file=$out/${package}_${version}_$architecture.deb
    dpkg-deb --root-owner-group -Zxz --build "$work/$package" "$file" >/dev/null
    echo "$file"
done
