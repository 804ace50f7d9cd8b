"""Compiled loops work without a cache folder, and a kept copy is dropped when any file of the package changes."""

from __future__ import annotations

from dmodels.sim import compiled


def double(x):
    return 2 * x


def test_without_a_writable_cache_folder_kernels_still_compile(monkeypatch):
    real = compiled.njit

    def refuses(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function 'double': no locator available for file 'somewhere'")
        return real(**options)

    monkeypatch.setattr(compiled, "njit", refuses)
    assert compiled.kernel(double)(21) == 42


def test_kept_copies_depend_on_every_file_of_the_package():
    stamp = compiled.kernel(double)._cache._cache_file._source_stamp
    assert {"fleet.py", "fleet_state.py", "routing.py", "virtual_time.py"} <= {name for name, *_ in stamp}
