"""PromptMixin: for whatever lets its prompts be read and exchanged."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from batonflow.llms.prompts.base import BasePromptTemplate, PromptTemplate

__all__ = ["PromptDictType", "PromptMixin", "PromptMixinType"]

PromptDictType = dict[str, BasePromptTemplate]
PromptMixinType = dict[str, "PromptMixin"]


class PromptMixin(ABC):
    """Has prompts that can be read and exchanged by name, its own and those of its parts.

    Subclasses write ``_get_prompts`` and ``_update_prompts``, and ``_get_prompt_modules`` if they have parts that are
    PromptMixins too. A part's prompt is called ``part:prompt``.

    Example:
        >>> team.get_prompts()
        >>> team.update_prompts({"writer:react_header": PromptTemplate("...")})
    """

    @abstractmethod
    def _get_prompts(self) -> PromptDictType:
        """The own prompts by name."""

    @abstractmethod
    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        """Use these of the own prompts from now on; the others stay."""

    def _get_prompt_modules(self) -> PromptMixinType:
        """The parts by name."""
        return {}

    def get_prompts(self) -> PromptDictType:
        """Copies of all prompts by name.

        Raises:
            ValueError: The name of a prompt or of a part has a colon in it.
        """
        own, parts = self._get_prompts(), self._get_prompt_modules()
        for name in (*own, *parts):
            if ":" in name:
                raise ValueError(
                    f"Prompt key {name} cannot contain ':', which stands between a part and its prompt: rename it in "
                    f"{type(self).__name__}"
                )
        prompts = {name: prompt.partial_format() for name, prompt in own.items()}
        for part, module in parts.items():
            prompts.update({f"{part}:{name}": prompt for name, prompt in module.get_prompts().items()})
        return prompts

    def update_prompts(self, prompts_dict: Mapping[str, BasePromptTemplate | str]) -> None:
        """Exchange prompts; those that are not named stay.

        Args:
            prompts_dict: By name as in :meth:`get_prompts`; a text becomes a PromptTemplate.

        Raises:
            ValueError: There is no such prompt or part. Nothing is exchanged then.
        """
        _check_known(self, prompts_dict)
        own: PromptDictType = {}
        of_parts: dict[str, PromptDictType] = {}
        for key, prompt in prompts_dict.items():
            template = PromptTemplate(prompt) if isinstance(prompt, str) else prompt
            part, colon, name = key.partition(":")
            if colon:
                of_parts.setdefault(part, {})[name] = template
            else:
                own[key] = template
        self._update_prompts(own)
        parts = self._get_prompt_modules()
        for part, prompts in of_parts.items():
            parts[part].update_prompts(prompts)


def _check_known(prompts: PromptMixin, given: Mapping[str, object]) -> None:
    known = prompts.get_prompts()
    parts = prompts._get_prompt_modules()  # pyright: ignore[reportPrivateUsage]
    for key in given:
        part, colon, _ = key.partition(":")
        if colon and part not in parts:
            raise ValueError(
                f"Module {part} not found in {type(prompts).__name__}; its parts are {', '.join(parts) or 'none'}"
            )
        if key not in known:
            raise ValueError(
                f"Prompt {key} not found in {type(prompts).__name__}; its prompts are {', '.join(known) or 'none'}"
            )
