#!/bin/sh
# Builds the real control plane that the demo and the tests run on:
# control-plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
# kubectl, supervise), kwok and helm. Builds once, and again only when the
# module changes.
#
#   build.sh OUT    OUT is the folder for the binaries
set -eu

module=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)

# Two builders at once wait for each other, where there is flock.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$out/.lock"
    flock 9
fi

# The stamp holds the sums of what the binaries were built from: times of a
# fresh checkout say nothing.
sums=$(cd "$module" && cat go.mod go.sum ./*.go build.sh | cksum)
if [ -x "$out/control-plane" ] && [ -x "$out/kwok" ] && [ -x "$out/helm" ] &&
    [ "$(cat "$out/stamp" 2>/dev/null)" = "$sums" ]; then
    exit 0
fi

if ! command -v go >/dev/null 2>&1; then
    echo "control-plane: 'go' is missing. Go 1.26 or later builds the control plane" >&2
    echo "  for demo and tests; get it from https://go.dev/dl/ or your system's packages." >&2
    exit 1
fi

cd "$module"
kubernetes=$(sed -n 's/^[[:space:]]*k8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' go.mod | head -n 1)
minor=${kubernetes#v1.}
minor=${minor%%.*}
version=k8s.io/component-base/version
flags="-s -w
    -X $version.gitVersion=$kubernetes
    -X $version.gitMajor=1
    -X $version.gitMinor=$minor
    -X $version.gitTreeState=clean
    -X $version.gitCommit=$kubernetes
    -X $version.buildDate=1970-01-01T00:00:00Z"
# Without these helm believes that it talks to Kubernetes 1.20.
for package in chartutil lint/rules; do
    flags="$flags
        -X helm.sh/helm/v3/pkg/$package.k8sVersionMajor=1
        -X helm.sh/helm/v3/pkg/$package.k8sVersionMinor=$minor"
done
flags=$(echo "$flags" | tr -s '\n ' ' ')

export CGO_ENABLED=0
build() {
    echo "control-plane: building $1 (the first build takes minutes)" >&2
    # Binaries are replaced by rename, so that a running plane keeps its own.
    go build -trimpath -buildvcs=false -ldflags "$flags" -o "$out/.$1.new" "$2"
    mv -f "$out/.$1.new" "$out/$1"
}
rm -f "$out/stamp"
build control-plane .
build kwok sigs.k8s.io/kwok/cmd/kwok
build helm helm.sh/helm/v3/cmd/helm
echo "$sums" >"$out/stamp"
