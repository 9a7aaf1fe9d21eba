"""Addresses of databases and names of schemas: wrong ones are refused, and no message has a password."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from batonflow.agents.memory import Memory
from batonflow.agents.memory.postgres_store import PostgresChatStore
from batonflow.durable.stores.addresses import is_postgres
from batonflow.durable.stores.opening import open_store
from batonflow.durable.stores.postgres import PostgresStore
from batonflow.durable.stores.postgres_connection import address_of
from batonflow.workflow_core.errors import StoreError
from tests.postgres import drop_schema, server_address

pytestmark = pytest.mark.external("postgresql")

WRONG = [
    "host=db user=ann password=secret",
    "postgresql+x://ann:secret@db/prod",
    "postgresql://ann:se/secret@db/prod",
    "postgresql://ann:12/secret@db/prod",
    "postgresql://ann:12?secret@db/prod",
    "postgresql://ann:se@secret@db/prod",
    "postgresql://ann:secret%zz@db/prod",
    "postgresql://ann:secret%00@db/prod",
    "postgresql://ann:secret%@db/prod",
    "postgresql://db:secret/prod",
    "postgresql://ann:secret@[::1/prod",
    "postgresql://ann:secret\0@db/prod",
]


@pytest.mark.parametrize(
    ("dsn", "address"),
    [
        ("postgresql://ann:secret@db:5432/prod?sslmode=require", "postgresql://db:5432/prod"),
        ("postgres://ann:s%2Fecret@db/prod", "postgresql://db/prod"),
        ("postgresql://ann:[s#c=t]@[::1]:5432,other:1/prod", "postgresql://[::1]:5432,other:1/prod"),
        ("postgresql://ann@/prod?host=/run/postgresql&password=secret", "postgresql:///prod?host=/run/postgresql"),
        ("postgresql://%2Frun%2Fpostgresql/prod", "postgresql://%2Frun%2Fpostgresql/prod"),
        ("postgresql://", "postgresql://"),
    ],
)
def test_an_address_is_shown_without_user_and_password(dsn: str, address: str) -> None:
    assert address_of(dsn) == address


@pytest.mark.parametrize("dsn", WRONG)
class TestWrongAddresses:
    def test_one_is_refused_without_its_password(self, dsn: str) -> None:
        for make in (PostgresStore, address_of):
            with pytest.raises(StoreError, match=r"postgresql://user@host/database") as said:
                make(dsn)
            assert "secret" not in f"{said.value} {said.value!r} {said.value.__context__!r}"

    def test_one_for_listening_is_refused_without_its_password(self, dsn: str) -> None:
        with pytest.raises(StoreError) as said:
            PostgresStore("postgresql://db/prod", listen_dsn=dsn)
        assert "secret" not in str(said.value)

    def test_one_of_a_chat_store_is_refused_without_its_password(self, dsn: str) -> None:
        makes: list[Callable[[], Any]] = [
            lambda: PostgresChatStore(dsn),
            lambda: PostgresChatStore.model_validate({"dsn": dsn}),
            lambda: PostgresChatStore.model_validate_json(json.dumps({"dsn": dsn})),
        ]
        for make in makes:
            with pytest.raises(ValueError, match="is not the address of a database") as said:
                make()
            assert "secret" not in f"{said.value} {said.value!r} {said.value.__context__!r}"
            if isinstance(said.value, ValidationError):
                assert "secret" not in said.value.json() + repr(said.value.errors())

    def test_one_for_the_option_store_is_refused_without_its_password(self, dsn: str) -> None:
        with pytest.raises(StoreError) as said:
            open_store(dsn)
        assert "secret" not in str(said.value)


def test_other_mistakes_of_a_chat_store_are_told_without_the_password() -> None:
    for values in ({"table_name": "a b"}, {"db_schema": "a b"}, {"dsn": ["secret"]}, {"dsn": {"secret": 1}}):
        with pytest.raises(ValidationError) as said:
            PostgresChatStore.model_validate({"dsn": "postgresql://ann:secret@db/prod", **values})
        assert "secret" not in f"{said.value} {said.value!r} {said.value.errors()} {said.value.json()}"


def test_a_chat_store_is_shown_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    store = PostgresChatStore("postgresql://ann:secret@db/prod")
    with caplog.at_level(logging.INFO):
        logging.getLogger("app").info("%s %r %r", store, store, Memory.from_defaults(chat_store=store))
    assert "secret" not in f"{store!r} {store} {caplog.text}"


@pytest.mark.parametrize("path", ["runs.db", "my host=x.db", "a=b.db", "ghost=1.db"])
def test_the_path_of_a_file_is_no_address(path: str) -> None:
    assert not is_postgres(path)


def test_another_kind_of_address_is_named_by_its_scheme() -> None:
    with pytest.raises(StoreError, match=r"store='mysql://\.\.\.': there are stores"):
        open_store("mysql://ann:secret@db/prod")


class TestSchemas:
    @pytest.mark.parametrize("schema", ["pg_runs", "information_schema", "pg_"])
    def test_names_that_postgresql_keeps_for_itself_are_refused(self, schema: str) -> None:
        with pytest.raises(StoreError, match=rf"schema='{schema}': PostgreSQL keeps .*, so give another"):
            PostgresStore("postgresql://db/prod", schema)
        with pytest.raises(ValueError, match="PostgreSQL keeps"):
            PostgresChatStore("postgresql://db/prod", db_schema=schema.upper())

    async def test_a_word_of_sql_is_a_name(self) -> None:
        store = PostgresStore(server_address(), "order")
        try:
            assert await store.list_runs() == []
        finally:
            await store.aclose()
            drop_schema(server_address(), '"order"')
