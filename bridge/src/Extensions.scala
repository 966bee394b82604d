package org.apache.spark.sql.indextables

import org.apache.spark.sql.SparkSessionExtensions

/** The class for `spark.sql.extensions`: all rules, functions and the parser of indextables. */
class Extensions extends (SparkSessionExtensions => Unit) {
  override def apply(session: SparkSessionExtensions): Unit = {
    SearchParser.inject(session)
    SearchFunctions.inject(session)
    TableChanges.inject(session)
    session.injectHintResolutionRule(InstallSessionTables(_))
    session.injectHintResolutionRule(RedactSecrets(_))
    session.injectHintResolutionRule(TimeTravel(_))
    session.injectHintResolutionRule(PathRelation(_))
    session.injectHintResolutionRule(MergeSchema(_))
    session.injectCheckRule(TableChecks(_))
    session.injectResolutionRule(SeveralPaths(_))
    session.injectResolutionRule(_ => HiddenColumns)
    session.injectPostHocResolutionRule(CatalogStatements(_))
    session.injectPostHocResolutionRule(_ => AddressComparisons)
    session.injectPostHocResolutionRule(_ => InputFiles)
    session.injectPostHocResolutionRule(_ => BindInSubqueries)
    session.injectPlanNormalizationRule(_ => PrepareSearches)
    session.injectOptimizerRule(_ => RemoveSearchTargets)
    session.injectOptimizerRule(_ => BindToTable)
    session.injectPreCBORule(_ => BindStreams)
    session.injectPlannerStrategy(_ => CheckUnboundSearches)
    session.injectPlannerStrategy(_ => PlanStreams)
  }
}
