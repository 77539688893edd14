"""Finding a model by its name: one condition for all patterns must never hide a model that has the name."""

from __future__ import annotations

import random

import pytest

from gateway.intake.rate_cards.card import Model, ModelCatalogue, ModelNameCondition, packaged_card

PIECES = ("gpt", "-", "4o", "mini", "2026", "claude", "x")


def find_one_by_one(models: tuple[Model, ...], name: str) -> Model | None:
    return next((model for model in models if model.match.matches(name)), None)


def condition(chance: random.Random, depth: int = 0) -> ModelNameCondition:
    def texts() -> tuple[str, ...]:
        return tuple(text(chance) for _ in range(chance.choice((0, 0, 1, 2))))

    clauses = [condition(chance, depth + 1) for _ in range(chance.choice((0, 1, 2)))] if depth < 3 else []
    return ModelNameCondition(
        equals=texts(),
        starts_with=texts(),
        ends_with=texts(),
        contains=texts(),
        regex=texts(),
        all=tuple(clauses),
    )


def text(chance: random.Random) -> str:
    return "".join(chance.choices(PIECES, k=chance.randrange(1, 4)))


@pytest.mark.parametrize("seed", range(20))
def test_model_of_random_conditions_is_the_first_that_matches(seed: int) -> None:
    chance = random.Random(seed)
    models = tuple(Model(id=str(number), match=condition(chance), prices=()) for number in range(6))
    catalogue = ModelCatalogue(models)
    names = [text(chance) for _ in range(300)]
    assert [catalogue.find_model(name) for name in names] == [find_one_by_one(models, name) for name in names]


def test_packaged_models_are_found_by_each_name_that_they_match() -> None:
    chance = random.Random(1)
    for seller in packaged_card().providers.values():
        catalogue = ModelCatalogue(seller.models)
        for model in chance.sample(seller.models, min(40, len(seller.models))):
            name = chance.choice(
                (model.id, f"{model.id}-2026-11-20", f"{model.id}:free", f"us.{model.id}-v1:0")
            )
            assert catalogue.find_model(name) == find_one_by_one(seller.models, name)
