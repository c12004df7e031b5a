"""The base of what is in a resource's spec, parsed: frozen models that have the names and the defaults of the CRD.

The API server has checked a spec against crds/*.yaml and filled in its defaults before it comes here. The defaults are
in the models as well, so that a plan can be tested without an API server; a test compares the two.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from daybook.core.errors import DaybookError
from daybook_operator.plan.effects import Manifest, ref_of


class SpecError(DaybookError):
    """A spec that the CRD does not allow: the API server has another CRD than this operator."""


class SpecPart(BaseModel):
    """One object of a spec. Fields that the model does not know are ignored, as those of a newer CRD are."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, given: Any) -> Any:
        """A field that is null counts as left out, as for the API server."""
        if isinstance(given, Mapping):
            return {name: value for name, value in given.items() if value is not None}
        return given


S = TypeVar("S", bound=SpecPart)


def parse_spec(model: type[S], manifest: Manifest) -> S:
    """`manifest["spec"]` as `model`. Raises SpecError, which names each field that is wrong."""
    try:
        return model.model_validate(manifest["spec"])
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, each['loc'])) or 'spec'}: {each['msg']}" for each in error.errors()]
        msg = f"the spec of {ref_of(manifest)} is not as crds/ has it: {'; '.join(wrong)}; apply crds/ of this release"
        raise SpecError(msg) from error
