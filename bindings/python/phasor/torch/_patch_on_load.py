"""patch_on_load(): patch() for every model that transformers loads while it is on."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, Literal

from torch import nn

from .._core import Error
from ._common import refusal
from ._patch import has_patched_part, patch_found, rotary_classes

# The class methods of PreTrainedModel by which AutoModel...from_pretrained and from_config, pipelines and the model
# classes make a model. ROPE_INIT_FUNCTIONS would not do: its functions give frequencies in float32, and the module
# multiplies them by the position in float32. A kernel for rotary_pos_emb receives cos and sin that are already wrong.
_LOADERS = ("from_pretrained", "_from_config")
_lock = threading.Lock()
_active: tuple[PatchOnLoad, ...] = ()
_replaced: dict[str, tuple[classmethod[Any, ..., Any], classmethod[Any, ..., Any]]] = {}  # (original, ours)
_thread = threading.local()  # loading: inside a loader; a model may load its parts with others


class PatchOnLoad:
    """What patch_on_load() switched on: remove() or the end of a `with` block switches it off."""

    def __init__(self, unsupported: Literal["raise", "warn"]) -> None:
        self.unsupported = unsupported

    def remove(self) -> None:
        """Models that are loaded afterwards are not patched; those that were stay so. Twice changes nothing."""
        global _active
        with _lock:
            _active = tuple(other for other in _active if other is not self)
            if not _active:
                _restore_loaders()

    def __enter__(self) -> PatchOnLoad:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def patch_on_load(*, unsupported: Literal["raise", "warn"] = "raise") -> PatchOnLoad:
    """From now on, every model that transformers loads (from_pretrained, from_config) is patched: one line before the load.

    The model is as after patch(model): patched() tells what was replaced, unpatch() restores it. A model without any
    rotation is unchanged. One whose rotation patch() refuses raises its Error after the load, or, with
    unsupported="warn", is left as it is with a warning. Models of all threads are patched, until remove() of the result or the
    end of `with patch_on_load():`. A model built by its class, LlamaForCausalLM(config), is not loaded: patch() it.

    Raises Error if this version of transformers has other loaders; ImportError without transformers.
    """
    global _active
    if unsupported not in ("raise", "warn"):
        raise refusal("invalid_argument", f"patch_on_load: unsupported must be raise or warn, got {unsupported!r}")
    handle = PatchOnLoad(unsupported)
    with _lock:
        if not _active:
            _replace_loaders()
        _active = (*_active, handle)
    return handle


def _base_class() -> tuple[Any, str]:
    try:
        import transformers
    except ImportError as error:
        text = f"patch_on_load: transformers is missing ({error}); run: pip install transformers"
        raise ImportError(text) from error
    return transformers.PreTrainedModel, transformers.__version__


def _replace_loaders() -> None:
    model, version = _base_class()
    originals = {name: vars(model).get(name) for name in _LOADERS}
    for name, original in originals.items():
        if not isinstance(original, classmethod):
            raise refusal(
                "unsupported",
                f"patch_on_load: PreTrainedModel.{name} of transformers {version} must be a class method, "
                f"got {type(original).__name__}: use patch(model)",
            )
    for name, original in originals.items():
        ours = classmethod(_patching(original.__func__))  # type: ignore[union-attr]
        _replaced[name] = (original, ours)  # type: ignore[assignment]
        setattr(model, name, ours)


def _restore_loaders() -> None:
    if not _replaced:
        return
    model, _ = _base_class()
    for name, (original, ours) in _replaced.items():
        # If somebody else wrapped ours since, it stays and does nothing.
        if vars(model).get(name) is ours:
            setattr(model, name, original)
    _replaced.clear()


def _patching(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def load(cls: type, *arguments: Any, **choices: Any) -> Any:
        if not _active or getattr(_thread, "loading", False):
            return original(cls, *arguments, **choices)
        _thread.loading = True
        try:
            loaded = original(cls, *arguments, **choices)
        finally:
            _thread.loading = False
        handles = _active
        if handles:
            _patch_loaded(loaded[0] if isinstance(loaded, tuple) else loaded, handles[-1].unsupported)
        return loaded

    return load


def _patch_loaded(model: nn.Module, unsupported: Literal["raise", "warn"]) -> None:
    if has_patched_part(model):  # its parts were loaded, and patched, by themselves
        return
    try:
        if not patch_found(model) and (names := rotary_classes(model)):
            text = f"patch_on_load: {type(model).__name__} rotates in a way that patch() does not know: {', '.join(names)}"
            raise refusal("unsupported", text)
    except Error as error:
        if unsupported == "raise":
            raise
        warnings.warn(f"{error}; the model is unchanged", stacklevel=3)


__all__ = ["PatchOnLoad", "patch_on_load"]
