"""One installation of PyTorch: the interpreter, the build, and what lies around it.

Reads   */site-packages/torch/{version.py,lib}  */site-packages/*.dist-info/{METADATA,INSTALLER}  */conda-meta
Format  https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from sysperf.collect.python import CXX_COMPILERS, Environment, Shell
from sysperf.collect.torch.build import build, gpu_code_in, version_file
from sysperf.collect.torch.libraries import foreign_rocm_runtime, libraries, product_targets
from sysperf.collect.torch.packages import packages
from sysperf.collect.torch.place import Place, editable_source
from sysperf.collect.torch.probe import ask
from sysperf.collect.torch.records import Install, part
from sysperf.collect.torch.site_packages import Site
from sysperf.collect.torch.surroundings import surroundings
from sysperf.collect.torch.wheels import capabilities, wheel
from sysperf.host import Host
from sysperf.model.record import joined


def read_install(host: Host, shell: Shell, place: Place, *, deep: bool = False) -> Install:
    """Everything about one installation; `deep` asks its interpreter as well."""
    environment = place.environment
    interpreter = f"{environment.prefix}/bin/python3" if host.exists(f"{environment.prefix}/bin/python3") else None
    answers = ask(host, interpreter) if deep and interpreter and place.wins and not place.is_users else None
    site = Site(
        host, place.site, place.prefix, environment.python_version or "", conda=environment.manager == "conda" and not place.is_users
    )
    source = "" if "torch" in (site.names or ()) else editable_source(host, place.site, site.names)
    root = f"{source or place.site}/torch"
    version_fields = version_file(host, root)
    version = version_fields.get("__version__") or site.dist("torch") or None
    found = joined(
        surroundings(host, shell, place),
        _interpreter(host, environment, site),
        build(site, version_fields, version, editable=bool(source), alone=len(environment.site_packages) == 1),
        libraries(site, host.names(f"{root}/lib"), version_fields, answers),
        packages(site, version),
    )
    code, code_source = gpu_code_in(site, root, found, answers)
    rest = part(
        active=environment.active and place.wins,
        interpreter=interpreter,
        compiler=_compiler(shell, site),
        arch_list=code,
        arch_source=code_source,
        wheel=wheel(version or "", found.cuda or "", site.machine) if found.official else "",
        foreign_rocm_runtime=foreign_rocm_runtime(host, f"{root}/lib", found.hip),
        product_targets=product_targets(site, root, found.hip),
        sass=capabilities(code, "sm_"),
        ptx=capabilities(code, "compute_"),
        deep=answers,
    )
    return joined(found, rest)


def _interpreter(host: Host, environment: Environment, site: Site) -> Install:
    base, library = environment.base, environment.library
    return part(
        python_version=site.conda.get("python", (environment.python_version,))[0],
        free_threaded=environment.free_threaded,
        py_debug=_py_debug(host, environment, site.machine),
        headers=host.exists(f"{base}/include/{library}/Python.h") if base and library else None,
    )


def _py_debug(host: Host, environment: Environment, machine: str) -> bool | None:
    """Debian installs the debug build's files beside the release's; only where those are alone is Python a debug build."""
    base, library = environment.base, environment.library
    if not base or not library or not machine:
        return None
    flags = "t" if environment.free_threaded else ""
    release, debug = (f"{base}/lib/{library}/_sysconfigdata_{flags}{kind}_linux_{machine}-linux-gnu.py" for kind in ("", "d"))
    return False if host.exists(release) else host.exists(debug)


def _compiler(shell: Shell, site: Site) -> bool | None:
    if any(name.startswith(("gxx_linux", "gxx_impl", "clangxx")) for name in site.conda):
        return True
    return None if shell.programs is None else any(name in shell.programs for name in CXX_COMPILERS)
