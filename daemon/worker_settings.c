/* SPDX-License-Identifier: Apache-2.0
 * The object `settings` of load and configure (settings.c) as the scheduler's configuration. IO thread. What is absent or
 * of a wrong type is the scheduler's default.
 */
#include "daemon/worker_priv.h"

static uint64_t number(const json_t *o, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(o, key));

	return v > 0 ? (uint64_t)v : 0;
}

static double real(const json_t *o, const char *key)
{
	double v = json_number_value(json_object_get(o, key));

	return v > 0 ? v : 0;
}

static struct sched_class_config class_of(const json_t *o)
{
	return (struct sched_class_config){ .ttft_ns = number(o, "ttft_ms") * NS_PER_MS,
		.tpot_ns = number(o, "tpot_ms") * NS_PER_MS,
		.max_waiting = (uint32_t)number(o, "max_waiting"),
		.max_waiting_tenant = (uint32_t)number(o, "max_waiting_tenant"),
		.max_waiting_bytes = number(o, "max_waiting_bytes") };
}

int settings_parse(const json_t *o, struct settings *out, struct error *e)
{
	const json_t *prefix = json_object_get(o, "prefix");
	const char *dir = json_string_value(json_object_get(prefix, "disk_dir"));

	*out = (struct settings){ .calibrate = json_is_true(json_object_get(o, "calibrate")),
		.pinned_percent = (uint32_t)number(prefix, "pinned_percent"),
		.host_bytes = number(prefix, "host_bytes"),
		.disk_bytes = number(prefix, "disk_bytes"),
		.memory_limit = number(o, "memory_limit") };
	out->sched = (struct sched_config){ .max_step_ns = number(o, "max_step_ms") * NS_PER_MS,
		.max_prefill_ns = number(o, "max_prefill_ms") * NS_PER_MS,
		.aging_ns = number(o, "aging_s") * NS_PER_S,
		.slack = real(o, "slack"),
		.long_prompt_factor = real(o, "long_prompt_factor"),
		.offline_min_share = real(o, "offline_min_share"),
		.no_prefix = json_is_false(json_object_get(prefix, "reuse")),
		.prefix.share_tenants = json_is_true(json_object_get(prefix, "share_tenants")) };
	out->sched.class[WIRE_ONLINE] = class_of(json_object_get(o, "online"));
	out->sched.class[WIRE_OFFLINE] = class_of(json_object_get(o, "offline"));
	out->disk_dir = dir && *dir ? mem_strdup(MEM_DAEMON, dir) : NULL;
	if (dir && *dir && !out->disk_dir)
		return error_set(e, TENON_E_NOMEM, "settings: out of memory");
	return TENON_OK;
}

void settings_finish(struct settings *s) { MEM_CLEAR(s->disk_dir); }
