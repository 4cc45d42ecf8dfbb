/* What the handlers of artifacts and of whole runs share. */
#pragma once

#include "api/v1/v1.h"
#include "execution/execution.h"

void v1_artifact_write(struct jsonw *w, const struct execution_artifact *a);
