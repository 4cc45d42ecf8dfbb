#include "base/base.h"

/* Open addressing with linear probing; removal shifts the run back, so there are no tombstones. */

static uint32_t hash_of(struct str key)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < key.n; i++)
		h = (h ^ (unsigned char)key.p[i]) * 16777619u;
	return h;
}

void map_done(struct map *m)
{
	free(m->slots);
	*m = (struct map){ 0 };
}

static struct map_slot *find(const struct map *m, struct str key, uint32_t hash)
{
	size_t i = hash & (m->cap - 1);

	while (m->slots[i].value && !(m->slots[i].hash == hash && str_eq(m->slots[i].key, key)))
		i = (i + 1) & (m->cap - 1);
	return &m->slots[i];
}

static void grow(struct map *m)
{
	struct map old = *m;

	m->cap = old.cap ? old.cap * 2 : 16;
	m->slots = XNEW_N(struct map_slot, m->cap);
	for (size_t i = 0; i < old.cap; i++)
		if (old.slots[i].value)
			*find(m, old.slots[i].key, old.slots[i].hash) = old.slots[i];
	free(old.slots);
}

void *map_get(const struct map *m, struct str key)
{
	return m->cap ? find(m, key, hash_of(key))->value : NULL;
}

void *map_put(struct map *m, struct str key, void *value)
{
	uint32_t hash = hash_of(key);
	struct map_slot *slot;
	void *old;

	assert(value);
	if ((m->n + 1) * 4 > m->cap * 3)
		grow(m);
	slot = find(m, key, hash);
	old = slot->value;
	*slot = (struct map_slot){ key, hash, value };
	m->n += !old;
	return old;
}

void *map_remove(struct map *m, struct str key)
{
	size_t mask = m->cap - 1, hole, i;
	struct map_slot *slot;
	void *old;

	if (!m->cap)
		return NULL;
	slot = find(m, key, hash_of(key));
	old = slot->value;
	if (!old)
		return NULL;
	m->n--;
	hole = i = (size_t)(slot - m->slots);
	for (;;) {
		i = (i + 1) & mask;
		if (!m->slots[i].value)
			break;
		/* May the entry at i move to the hole without passing its own home? */
		if (((i - m->slots[i].hash) & mask) >= ((i - hole) & mask)) {
			m->slots[hole] = m->slots[i];
			hole = i;
		}
	}
	m->slots[hole] = (struct map_slot){ 0 };
	return old;
}

void *map_next(const struct map *m, size_t *at)
{
	while (*at < m->cap) {
		void *value = m->slots[(*at)++].value;

		if (value)
			return value;
	}
	return NULL;
}
