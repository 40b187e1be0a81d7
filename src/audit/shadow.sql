-- Functions of a rebuild, for any table: names and definitions come from the catalogue, and the functions quote them.
-- They live in the session's temporary schema and end with the session.

-- Creates an empty copy in `shadow`: columns, defaults, checks, storage options, and the keys that upserts need, under
-- the same names.
CREATE FUNCTION pg_temp.prepare(t name) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    origin regclass := format('public.%I', t);
    options text := (SELECT array_to_string(reloptions, ', ') FROM pg_class WHERE oid = origin);
    made record;
BEGIN
    IF EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND confrelid = origin) THEN
        RAISE EXCEPTION 'a foreign key refers to %: it cannot be swapped', origin;
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS shadow.%I', t);
    EXECUTE format('CREATE TABLE shadow.%I (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED INCLUDING IDENTITY
        INCLUDING STORAGE INCLUDING COMPRESSION INCLUDING COMMENTS) %s', t, origin, 'WITH (' || options || ')');
    FOR made IN SELECT conname AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint
        WHERE conrelid = origin AND contype = 'p' LOOP
        EXECUTE format('ALTER TABLE shadow.%I ADD CONSTRAINT %I %s', t, made.name, made.definition);
    END LOOP;
END $$;

-- Creates the other keys and indexes, after the bulk of the rows is inserted.
CREATE FUNCTION pg_temp.finish(t name) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    origin regclass := format('public.%I', t);
    made record;
BEGIN
    FOR made IN SELECT conname AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint
        WHERE conrelid = origin AND contype IN ('u', 'x', 'f') ORDER BY conname LOOP
        EXECUTE format('ALTER TABLE shadow.%I ADD CONSTRAINT %I %s', t, made.name, made.definition);
    END LOOP;
    FOR made IN SELECT pg_get_indexdef(i.indexrelid) AS definition FROM pg_index i
        WHERE i.indrelid = origin AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid AND c.conrelid = origin)
        ORDER BY i.indexrelid LOOP
        EXECUTE replace(made.definition, format(' ON public.%I ', t), format(' ON shadow.%I ', t));
    END LOOP;
    EXECUTE format('ANALYZE shadow.%I', t);
END $$;

-- Replaces the table by its copy, with the same owner and privileges.
CREATE FUNCTION pg_temp.swap(t name) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    origin regclass := format('public.%I', t);
    copy regclass := format('shadow.%I', t);
    owned_by name := (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = origin);
    given record;
BEGIN
    IF owned_by <> (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = copy) THEN
        EXECUTE format('ALTER TABLE %s OWNER TO %I', copy, owned_by);
    END IF;
    -- A table without explicit grants belongs to its owner alone, as any new table does.
    FOR given IN SELECT CASE WHEN acl.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END AS grantee,
            acl.privilege_type AS privilege, acl.is_grantable
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS acl WHERE c.oid = origin LOOP
        EXECUTE format('GRANT %s ON TABLE %s TO %s%s', given.privilege, copy, given.grantee,
            CASE WHEN given.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
    FOR given IN SELECT CASE WHEN acl.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END AS grantee,
            acl.privilege_type AS privilege, acl.is_grantable, a.attname
        FROM pg_attribute a CROSS JOIN LATERAL aclexplode(a.attacl) AS acl WHERE a.attrelid = origin LOOP
        EXECUTE format('GRANT %s (%I) ON TABLE %s TO %s%s', given.privilege, given.attname, copy, given.grantee,
            CASE WHEN given.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
    -- No CASCADE: anything that depends on the table stops the swap.
    EXECUTE format('DROP TABLE %s', origin);
    EXECUTE format('ALTER TABLE %s SET SCHEMA public', copy);
END $$;

-- Takes all locks in one statement, so that a session that reads several tables at once cannot hold only some of them.
CREATE FUNCTION pg_temp.lock_tables(tables name[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE (SELECT 'LOCK TABLE ' || string_agg(format('public.%I', t), ', ') || ' IN ACCESS EXCLUSIVE MODE' FROM unnest(tables) AS t);
END $$;

CREATE FUNCTION pg_temp.discard(t name) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS shadow.%I', t);
END $$;
